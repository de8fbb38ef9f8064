# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/185497"
# difference = "exception of call after backward of call 1: eager raises nothing, compiled raises RuntimeError('one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor [0]] is at version 2; expected version 1 instead. Hint: enable anomaly detection to f')"
# keys.aot_function = "(exception, backward, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (0,), (1,), 0, requires_grad=True)
    a1 = a0.detach()
    return (a0, a1), named(locals())

def f(x0, x1):
    x1.zero_()
    v0 = torch.sin(x0)
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
