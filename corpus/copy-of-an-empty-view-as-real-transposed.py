# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Tensor must have a stride divisible by 2 for all but last dimension')"
# keys.aot_function = "(exception, forward, RuntimeError: Tensor must have a stride divisible by N for all but last dimension)"
# keys.aot_eager = "(exception, forward, RuntimeError: Tensor must have a stride divisible by N for all but last dimension)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (0,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.view_as_real(x0)
    v1 = v0.clone()
    v2 = v1.t()
    return v2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
