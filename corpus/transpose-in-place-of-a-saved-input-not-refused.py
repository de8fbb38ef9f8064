# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after backward of call 1: eager raises RuntimeError('one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor []], which is output 0 of T1, is at version 1; expected version 0 instead. Hint: enab'), compiled raises nothing"
# keys.aot_function = "(exception, backward, missing RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    a2 = torch.sin(a1)
    return (a1, a2), named(locals())

def f(x0, x1):
    x0.t_()
    return x1
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
