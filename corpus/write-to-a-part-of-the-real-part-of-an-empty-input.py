# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('view_as_real is only supported for complex tensors')"
# keys.aot_function = "(exception, forward, RuntimeError: view_as_real is only supported for complex tensors)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.complex64, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.complex64, (0,), (1,), 0)
    a1 = strided(s1, torch.float32, (), (), 0)
    a2 = strided(s1, torch.float32, (), (), 0)
    a3 = a0.real
    return ((a3, a1, a2, a1),), named(locals())

def f(x0):
    v0 = x0[1]
    v0.zero_()
    return x0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
