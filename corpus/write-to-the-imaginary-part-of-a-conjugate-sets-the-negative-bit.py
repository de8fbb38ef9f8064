# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3104, reduced"
# issue = "none found"
# difference = "neg of output after forward of call 1: eager False, compiled True"
# keys.aot_function = "(neg, output)"
# keys.aot_eager = "(neg, output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 2, -1, 1], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v2 = torch.neg(x0)
    v4 = v2.conj()
    v5 = v4.imag
    v5.mul_(2)
    return v2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
