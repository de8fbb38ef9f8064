# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "values of result[1] after grad of call 2: eager 0.0 at [0] (2 of 2 elements differ), compiled 1.0"
# note = "a custom Function writes an input without `mark_dirty`"
# keys.aot_function = "(values, result after grad, later call)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = torch.mul(a0, 2)
    a2 = a1.view((2,))
    return (a2,), named(locals())
def make_inputs_1(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = torch.mul(a0, 2)
    a2 = a1.view((2,))
    return (a2,), named(locals())

def f(x0):
    v0 = torch.neg(x0)
    WritesUnmarked.apply(x0)
    return (v0, x0)
CALLS = [
    {"inputs": make_inputs_0},
    {"inputs": make_inputs_1, "steps": (
        {"do": "backward", "roots": (0, 1), "way": "grad", "graph": "retained", "calls_ago": 1},
    )},
]
main(__file__)
