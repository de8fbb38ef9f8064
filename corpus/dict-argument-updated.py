# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "values of a1 after probe of call 1: eager 0.0 at [0] (1 of 1 elements differ), compiled 1.0"
# keys.aot_function = "(values, input after probe)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([1], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0)
    return (a1, a1, a1, a1, {"k0": [a0]}), named(locals())

def f(x0, x1, x2, x3, x4):
    x4.update({"k0": x0})
    return None
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "probe", "site": "input", "index": 4, "seed": 1},)}]
main(__file__)
