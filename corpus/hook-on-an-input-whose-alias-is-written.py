# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "identity of output after forward of call 1: eager is the same object as a2, compiled is the same object as nothing before it"
# keys.aot_function = "(identity, output-input vs none)"
# keys.aot_eager = "(values, hook after backward)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    a2 = a1.t()
    return (a1, a2), named(locals())

def f(x0, x1):
    x1.add_(x1)
    return x1
CALLS = [
    {"inputs": make_inputs_0, "before": (
        {"do": "hook", "kind": "watch", "site": "input", "index": 1},
    ), "steps": (
        {"do": "backward", "roots": (0,)},
    )},
]
main(__file__)
