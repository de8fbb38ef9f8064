# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3104, reduced"
# issue = "none found"
# difference = "exception of call after grad of call 1: eager raises RuntimeError('one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor [2]], which is output 0 of Mul, is at version 1; expected version 0 instead. Hint: en'), compiled raises nothing"
# keys.aot_function = "(exception, grad, missing RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# keys.aot_eager = "(exception, grad, missing RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = torch.mul(a0, 2)
    return (a1,), named(locals())

def f(x1):
    v0, = torch._foreach_mul([x1], -1)
    return (v0, x1)
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "probe", "site": "input", "index": 0, "seed": 3},
        {"do": "backward", "roots": (0,), "cotangents": (("trained", 0),), "way": "grad", "graph": "retained"},
    )},
]
main(__file__)
