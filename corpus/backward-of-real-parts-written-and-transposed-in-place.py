# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after backward of call 1: eager raises nothing, compiled raises RuntimeError('invalid gradient at index 0 - got [2, 1] but expected shape compatible with [1, 2]')"
# keys.aot_function = "(exception, backward, RuntimeError: invalid gradient at index N - got [N] but expected shape compatible with [N])"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (1,), (1,), 0, requires_grad=True)
    a1 = a0.clone()
    a2 = torch.view_as_real(a1)
    return (a2,), named(locals())

def f(x0):
    x0.zero_()
    x0.t_()
    return x0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
