# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Tensor must have a last dimension of size 2')"
# keys.aot_function = "(exception, forward, RuntimeError: Tensor must have a last dimension of size N)"
# keys.aot_eager = "(exception, forward, RuntimeError: Tensor must have a last dimension of size N)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.view_as_real(x0)
    v0.set_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
