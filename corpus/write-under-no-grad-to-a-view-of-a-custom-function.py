# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/194534"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Output 0 of ReturnsView is a view and is being modified inplace. This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic to handle view+inplace w')"
# keys.aot_function = "(exception, forward, RuntimeError: Output N of X is a view and is being modified inplace)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = ReturnsView.apply(a0)
    return (a1,), named(locals())

def f(x0):
    with torch.no_grad():
        x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
