# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Function torch::autograd::CopySlices returned an invalid gradient at index 0 - got [0] but expected shape compatible with [1, 1]')"
# keys.aot_function = "(exception, forward, RuntimeError: Function torch::autograd::CopySlices returned an invalid gradient at index N - got [N] but expected shape compatible ...)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1), (1, 1), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    with torch.no_grad():
        x0.set_()
    x0[::2] = 0
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
