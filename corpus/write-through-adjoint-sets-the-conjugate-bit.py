# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 62 --examples 2000, reduced"
# issue = "none found"
# difference = "conj of output after forward of call 1: eager False, compiled True"
# keys.aot_function = "(conj, output)"
# keys.aot_eager = "(conj, output)"
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
    v0 = x0.clone()
    v1 = torch.adjoint(v0)
    v1.zero_()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
