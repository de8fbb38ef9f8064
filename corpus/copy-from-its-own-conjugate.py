# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "values of a0 after forward of call 1: eager -1j at [0] (1 of 1 elements differ), compiled 1j"
# keys.aot_function = "(values, input)"
# keys.aot_eager = "(values, input)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 1], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (), (), 0)
    a1 = a0.conj()
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.copy_(x1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
