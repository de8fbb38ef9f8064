# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "requires-grad of result[0] after grad of call 1: eager True, compiled False"
# keys.aot_function = "(requires-grad, result after grad)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    return (v0, v0)
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "backward", "roots": (0,), "cotangents": (("trained", 0),), "way": "grad"},
    )},
]
main(__file__)
