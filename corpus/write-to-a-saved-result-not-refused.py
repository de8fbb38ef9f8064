# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "none found"
# difference = "exception of call after grad of call 1: eager raises RuntimeError('one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor []], which is output 0 of Amin, is at version 1; expected version 0 instead. Hint: en'), compiled raises nothing"
# keys.aot_eager = "(exception, grad, missing RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.amin(x0)
    return v0
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "probe", "site": "output", "index": 0, "seed": 1},
        {"do": "backward", "roots": (0,), "way": "grad"},
    )},
]
main(__file__)
