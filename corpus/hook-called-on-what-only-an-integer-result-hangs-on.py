# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "hook of hook[0] after backward of call 2: eager called 0 times, compiled 1 times"
# keys.aot_function = "(hook, hook after backward, later call)"
# keys.aot_eager = "(hook, hook after backward, later call)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([-1, 2], torch.complex64, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.complex64, (), (), 0, requires_grad=True)
    a3 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1, a1, a3), named(locals())

def f(x0, x1, x2):
    v0 = torch.ge(x2, 1)
    x0.fill_(3)
    return x0
CALLS = [
    {"inputs": make_inputs_0, "before": ({"do": "hook", "kind": "double", "site": "input", "index": 2},)},
    {"inputs": None, "steps": (
        {"do": "backward", "roots": (0,), "cotangents": (("strided", 0), ("zeros", 2)), "calls_ago": 1},
    )},
]
main(__file__)
