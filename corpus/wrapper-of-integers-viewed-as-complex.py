# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: Long')"
# keys.aot_function = "(exception, forward, RuntimeError: view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: T)"
# keys.aot_eager = "(exception, forward, RuntimeError: view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: T)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.int64, device)
    a0 = strided(s0, torch.int64, (), (), 0)
    a1 = wrapped.two(a0, a0)
    return (a1,), named(locals())

def f(x0):
    v0 = x0.view(torch.complex64)
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
