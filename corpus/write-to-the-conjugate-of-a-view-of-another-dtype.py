# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('torch.Tensor.view is not supported for conjugate view tensors when converting to a different dtype.')"
# keys.aot_function = "(exception, forward, RuntimeError: torch.Tensor.view is not supported for conjugate view tensors when converting to a different dtype)"
# keys.aot_eager = "(exception, forward, RuntimeError: torch.Tensor.view is not supported for conjugate view tensors when converting to a different dtype)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.view(torch.complex64)
    v1 = v0.conj()
    v1.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
