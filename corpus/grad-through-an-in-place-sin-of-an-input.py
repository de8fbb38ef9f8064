# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/185497"
# difference = "exception of call after grad of call 1: eager raises nothing, compiled raises RuntimeError('one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor []], which is output 0 of torch::autograd::CopyBackwards, is at version 1; expected v')"
# keys.aot_eager = "(exception, grad, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([2], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x1):
    v3 = x1.sin_()
    return v3
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "backward", "roots": (0,), "cotangents": (("pattern", 3),), "way": "grad", "graph": "retained"},
    )},
]
main(__file__)
