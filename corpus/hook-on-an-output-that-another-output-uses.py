# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/186554"
# difference = "values of hook[0][0] after grad of call 1: eager 0.0 at [0] (2 of 2 elements differ), compiled 1.0"
# note = "a hook on an output from which another output is computed gets a wrong gradient"
# keys.aot_function = "(values, hook after grad)"
# keys.aot_eager = "(values, hook after grad)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 1], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.neg(x0)
    v1 = torch.neg(v0)
    return (v0, v1)
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "hook", "kind": "watch", "site": "output", "index": 0},
        {"do": "backward", "roots": (0, 1), "way": "grad"},
    )},
]
main(__file__)
