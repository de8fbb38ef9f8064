# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "neg of output after forward of call 1: eager True, compiled False"
# keys.aot_function = "(neg, output)"
# keys.aot_eager = "(neg, output)"
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
    v1 = v0.conj()
    v2 = v1.imag
    v2.fill_(3)
    return v2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
