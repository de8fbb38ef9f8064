# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises IndexError('select(): index 1 out of range for tensor of size [1, 2] at dimension 0')"
# keys.aot_function = "(exception, forward, IndexError: select(): index N out of range for tensor of size [N] at dimension N)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (1,), (1,), 0, requires_grad=True)
    a1 = a0.clone()
    a2 = a1.t()
    return (a1, a2), named(locals())

def f(x0, x1):
    x0.squeeze_()
    v0 = x0.imag
    x0.zero_()
    v0.clone()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
