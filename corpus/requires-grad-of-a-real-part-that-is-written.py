# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "requires-grad of output after probe of call 1: eager True, compiled False"
# keys.aot_function = "(requires-grad, output after probe)"
# keys.aot_eager = "(requires-grad, output after probe)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (), (), 0)
    a1 = a0.t()
    a1.requires_grad_()
    return (a1,), named(locals())

def f(x0):
    v0 = x0.real
    v0.requires_grad_()
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "probe", "site": "output", "index": 0, "seed": 1},)}]
main(__file__)
