# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3104, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/91468"
# difference = "values of hook[0][0] after backward of call 1: eager 2.0 at [], compiled 1.0"
# keys.aot_function = "(values, hook after backward)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([1], torch.float32, device)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    return (a1,), named(locals())

def f(x0):
    v1 = torch.mul(x0, 3)
    Inside.doubles(v1)
    return v1
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "hook", "kind": "watch", "site": "output", "index": 0},
        {"do": "backward", "roots": (0,)},
    )},
]
main(__file__)
