# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 3 --strategy strategies:programs"
# issue = "ours"
# difference = "gradient-none of result[0] after double grad of call 1: eager torch.float32 of shape (0,), compiled None"
# keys.aotcheck = "(gradient-none, result after double grad)"
# expect.aotcheck."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (0,), (1,), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    v0, v1 = torch.cummax(x0, 0)
    return v0
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "backward", "roots": (0,), "way": "grad", "graph": "created"},
        {"do": "backward", "roots": (0,), "of": "results", "way": "grad"},
    )},
]
main(__file__)
