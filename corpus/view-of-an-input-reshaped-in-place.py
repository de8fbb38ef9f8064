# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --seed 0"
# issue = "ours"
# difference = "the trace replayed the index of a multi-output view on another shape"
# keys.aotcheck = "(crash, process)"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([-2, 0, 2, -1, 1, -2, 0, 2, -1, 1, -2, 0], torch.int32, device)
    a0 = strided(s0, torch.int32, (4,), (1,), 0)
    a1 = strided(s0, torch.int32, (4,), (1,), 2)
    a2 = strided(s0, torch.int32, (2, 2), (1, 2), 0)
    return (a0, a1, a2), named(locals())

def f(x0, x1, x2):
    v0 = x2.squeeze()
    with torch.no_grad():
        v1, v2 = torch.unbind(x2, 0)
    v3 = x2.as_strided_((1,), (1,), 3)
    return (v3, v2, x1, x0)
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "probe", "site": "input", "index": 0, "seed": 2},
        {"do": "probe", "site": "output", "index": 3, "seed": 2},
    )},
    {"inputs": None, "steps": (
        {"do": "backward", "roots": (0,), "cotangents": (("pattern", 2),)},
        {"do": "probe", "site": "input", "index": 1, "seed": 1},
    )},
]
main(__file__)
