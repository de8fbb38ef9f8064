# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "values of a0.grad after backward 2 of call 1: eager 13.0 at [], compiled 12.0"
# note = "a custom backward writes a tensor that it keeps; the next backward does not see the write"
# keys.aot_function = "(values, gradient after backward)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0, v1 = Composed.apply(x0, x0, "product", "attribute", "view", "late", False)
    return v0
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "backward", "roots": (0,), "graph": "retained"},
        {"do": "backward", "roots": (0,)},
    )},
]
main(__file__)
