# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/131794"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises TypeError(\u0022unsupported operand type(s) for *: 'NoneType' and 'int'\u0022)"
# keys.aot_function = "(exception, forward, TypeError: unsupported operand type(s) for *: 'X' and 'X')"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1, 1, 3), (3, 3, 3, 1), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0, v1, v2 = torch.chunk(x0, 3, 3)
    Inside.doubles(v0)
    return v1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
