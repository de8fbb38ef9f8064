# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('self.stride(0) must be divisible by 2 to view Int as ComplexFloat (different element sizes), but got 1')"
# keys.aot_function = "(exception, forward, RuntimeError: self.stride[N] must be divisible by N to view T as T (different element sizes), but got N)"
# keys.aot_eager = "(exception, forward, RuntimeError: self.stride[N] must be divisible by N to view T as T (different element sizes), but got N)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (0, 2), (2, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.view(torch.int32)
    v1 = v0.t()
    v1.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
