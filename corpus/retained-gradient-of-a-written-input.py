# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/186554"
# difference = "values of a3.grad after grad of call 1: eager 3.0 at [], compiled 1.0"
# keys.aot_function = "(values, gradient after grad)"
# keys.aot_eager = "(values, gradient after grad)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([1], torch.float32, device)
    a2 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    a3 = a2.clone()
    return (a3,), named(locals())

def f(x1):
    x1.zero_()
    v4 = torch.mul(x1, 2)
    return (x1, v4)
CALLS = [
    {"inputs": make_inputs_0, "before": (
        {"do": "hook", "kind": "retain", "site": "input", "index": 0},
    ), "steps": (
        {"do": "backward", "roots": (0, 1), "way": "grad", "inputs": (0,)},
    )},
]
main(__file__)
