# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "leafness of output[0] after probe of call 2: eager False, compiled refused"
# keys.aot_function = "(leafness, output after probe, later call)"
# keys.aot_eager = "(leafness, output after probe, later call)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (), (), 0, requires_grad=True)
    return (a0,), named(locals())
def make_inputs_1(device):
    s0 = storage([0, 0], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.neg(x0)
    v1 = v0.real
    v1.fill_(3)
    return (v1, v0)
CALLS = [
    {"inputs": make_inputs_0},
    {"inputs": make_inputs_1, "steps": ({"do": "probe", "site": "output", "index": 0, "seed": 1},)},
]
main(__file__)
