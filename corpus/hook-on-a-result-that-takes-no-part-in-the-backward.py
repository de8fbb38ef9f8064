# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/131794"
# difference = "hook of hook[0] after backward of call 1: eager called 0 times, compiled 1 times"
# keys.aot_function = "(hook, hook after backward)"
# keys.aot_eager = "(hook, hook after backward)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    v1 = x0.clone()
    return (v1, x0, v0)
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "hook", "kind": "watch", "site": "output", "index": 0},
        {"do": "backward", "roots": (2,)},
    )},
]
main(__file__)
