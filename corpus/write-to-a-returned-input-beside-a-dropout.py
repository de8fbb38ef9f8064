# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3104, reduced"
# issue = "none found"
# difference = "exception of call after grad of call 1: eager raises nothing, compiled raises RuntimeError('one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor [1]], which is output 0 of Mul, is at version 1; expected version 0 instead. Hint: en')"
# keys.aot_function = "(exception, grad, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0, requires_grad=True)
    a1 = torch.mul(a0, 2)
    return (a1,), named(locals())

def f(x0):
    v0 = torch.nn.functional.dropout(x0, p=0.5)
    return (v0, x0)
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "probe", "site": "input", "index": 0, "seed": 1},
        {"do": "backward", "roots": (0, 1), "way": "grad"},
    )},
]
main(__file__)
