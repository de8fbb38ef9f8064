# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "none found"
# difference = "conj of output after forward of call 1: eager True, compiled False"
# keys.aot_function = "(conj, output)"
# keys.aot_eager = "(conj, output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([1, 2, 3, 4], torch.complex64, device)
    a2 = strided(s1, torch.complex64, (1, 2), (2, 1), 0)
    a4 = a2.conj()
    return (a4, a2), named(locals())

def f(x0, x2):
    v1 = x0[0]
    x2.fill_(1)
    return v1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
