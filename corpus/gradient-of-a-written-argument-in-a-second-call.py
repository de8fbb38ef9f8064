# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/185497"
# difference = "exception of call after grad of call 2: eager raises nothing, compiled raises RuntimeError('one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor []], which is output 0 of torch::autograd::CopyBackwards, is at version 2; expected v')"
# keys.aot_eager = "(exception, grad, later call, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    x0.sin_()
    return x0
CALLS = [{"inputs": make_inputs_0}, {"inputs": None, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
