# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/91468"
# difference = "exception of call after grad of call 1: eager raises nothing, compiled raises TypeError(\u0022unsupported operand type(s) for *: 'NoneType' and 'int'\u0022)"
# keys.aot_eager = "(exception, grad, TypeError: unsupported operand type(s) for *: 'X' and 'X')"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    v1 = x0.clone()
    Inside.doubles(v1)
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
