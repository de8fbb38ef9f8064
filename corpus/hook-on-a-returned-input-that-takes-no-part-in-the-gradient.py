# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/131794"
# difference = "hook of hook[0] after grad of call 1: eager called 0 times, compiled 1 times"
# keys.aot_function = "(hook, hook after grad)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (), (), 0)
    a1.requires_grad_()
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = x0.clone()
    return (v0, x1)
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "hook", "kind": "watch", "site": "output", "index": 1},
        {"do": "backward", "roots": (0,), "way": "grad"},
    )},
]
main(__file__)
