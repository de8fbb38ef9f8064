# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 20262502 --strategy strategies:backwards"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises TypeError(\u0022unsupported operand type(s) for *: 'NoneType' and 'int'\u0022)"
# note = "the hook on an unused part is called while tracing, with None"
# keys.aot_function = "(exception, forward, TypeError: unsupported operand type(s) for *: 'X' and 'X')"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 3), (3, 1), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0, v1, v2 = torch.unsafe_split(x0, 1, 1)
    Inside.doubles(v1)
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
