# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/91468"
# difference = "exception of call after backward of call 1: eager raises nothing, compiled raises TypeError(\u0022unsupported operand type(s) for *: 'NoneType' and 'int'\u0022)"
# keys.aot_eager = "(exception, backward, TypeError: unsupported operand type(s) for *: 'X' and 'X')"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([1], torch.float32, device)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    return (a1,), named(locals())

def f(x0):
    v0 = torch.tanh(x0)
    v1 = torch.exp(x0)
    Inside.doubles(v1)
    return (v0, v1)
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
