# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('a Tensor with 0 elements cannot be converted to Scalar')"
# keys.aot_function = "(exception, forward, RuntimeError: a Tensor with N elements cannot be converted to Scalar)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.float32, device)
    s1 = storage([], torch.complex64, device)
    s2 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (0,), (1,), 0, requires_grad=True)
    a1 = strided(s1, torch.complex64, (0,), (1,), 0, requires_grad=True)
    a2 = strided(s2, torch.float32, (), (), 0)
    a3 = a1.clone()
    return (a2, a0, a3, a3), named(locals())

def f(x0, x1, x2, x3):
    x0.zero_()
    x2.zero_()
    v0 = x1.clone()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
