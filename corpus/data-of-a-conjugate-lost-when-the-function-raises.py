# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "conj of a1 after forward of call 1: eager False, compiled True"
# keys.aot_function = "(conj, input, both raise)"
# keys.aot_eager = "(conj, input, both raise)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (2,), (1,), 0)
    a1 = a0.conj()
    return (a0, a1), named(locals())

def f(x0, x1):
    x1.data = x0
    v9 = torch.ones((7,), device=x0.device)
    x0.copy_(v9)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
