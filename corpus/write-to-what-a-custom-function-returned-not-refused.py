# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('Output 0 of ReturnsInput is a view and is being modified inplace. This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic to handle view+inplace '), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: Output N of X is a view and is being modified inplace)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    a2 = ReturnsInput.apply(a1)
    return (a1, a2), named(locals())

def f(x0, x1):
    x1.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
