# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after grad of call 1: eager raises RuntimeError('one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor []], which is output 0 of Sigmoid, is at version 1; expected version 0 instead. Hint:'), compiled raises nothing"
# keys.aot_function = "(exception, grad, missing RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# keys.aot_eager = "(exception, grad, missing RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = wrapped.constant(a0)
    a1.requires_grad_()
    return (a1,), named(locals())

def f(x0):
    v0 = torch.sigmoid(x0)
    return v0
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "probe", "site": "output", "index": 0, "seed": 1},
        {"do": "backward", "roots": (0,), "way": "grad"},
    )},
]
main(__file__)
