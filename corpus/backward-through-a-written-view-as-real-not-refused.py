# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "none found"
# difference = "exception of call after backward of call 1: eager raises RuntimeError('Tensor must have a last dimension with stride 1'), compiled raises nothing"
# keys.aot_function = "(exception, backward, missing RuntimeError: Tensor must have a last dimension with stride N)"
# keys.aot_eager = "(exception, backward, missing RuntimeError: Tensor must have a last dimension with stride N)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (0,), (1,), 0, requires_grad=True)
    a1 = a0.clone()
    a2 = torch.view_as_real(a1)
    return (a2,), named(locals())

def f(x0):
    v0 = x0.sum()
    x0.zero_()
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
