# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "hook of hook[0] after grad of call 1: eager called 0 times, compiled 1 times"
# keys.aot_function = "(hook, hook after grad)"
# keys.aot_eager = "(hook, hook after grad)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.bfloat16, device)
    s1 = storage([], torch.float32, device)
    a0 = strided(s0, torch.bfloat16, (3, 1, 1, 0), (1, 1, 1, 1), 0, requires_grad=True)
    a2 = strided(s1, torch.float32, (0, 4), (4, 1), 0, requires_grad=True)
    a1 = a0.clone()
    a3 = a2.clone()
    return (a3, a1, 0.5), named(locals())

def f(x0, x1, x2):
    x1.zero_()
    x0.abs_()
    v0 = torch.rsub(x0, 0, alpha=2)
    return (v0, {"k": x1})
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "hook", "kind": "double", "site": "input", "index": 1},
        {"do": "backward", "roots": (0, 1), "cotangents": (("pattern", 1),), "way": "grad", "inputs": (1,), "graph": "retained"},
    )},
]
main(__file__)
