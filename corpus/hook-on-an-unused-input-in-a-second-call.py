# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/131794"
# difference = "hook of hook[0] after backward of call 2: eager called 0 times, compiled 1 times"
# keys.aot_function = "(hook, hook after backward, later call)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    return (a1, a0), named(locals())

def f(x0, x1):
    v0 = x0.clone()
    return v0
CALLS = [
    {"inputs": make_inputs_0, "before": ({"do": "hook", "kind": "watch", "site": "input", "index": 1},)},
    {"inputs": None, "steps": ({"do": "backward", "roots": (0,)},)},
]
main(__file__)
