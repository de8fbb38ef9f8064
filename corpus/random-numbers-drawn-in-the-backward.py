# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "rng of process after backward of call 1: eager leaves the generator in one state, compiled in another"
# note = "three dropouts: the backward draws from the generator"
# keys.aot_function = "(rng, process after backward)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (4,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.nn.functional.dropout(x0, p=0.5)
    v1 = torch.nn.functional.dropout(v0, p=0.5)
    v2 = torch.nn.functional.dropout(x0, p=0.5)
    v3 = v2.maximum(v1)
    return (v3, x0, v1)
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0, 1, 2)},)}]
main(__file__)
