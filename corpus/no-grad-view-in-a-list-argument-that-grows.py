# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3104, reduced"
# issue = "none found"
# difference = "leafness of a2 after probe of call 1: eager refused, compiled True"
# keys.aot_function = "(leafness, input after probe)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    s1 = storage([2], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a4 = strided(s1, torch.float32, (), (), 0)
    with torch.no_grad():
        a2 = a0.t()
    return (a2, a0, [a4, a2]), named(locals())

def f(x0, x1, x2):
    x2.insert(0, x0)
    return None
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "probe", "site": "input", "index": 2, "seed": 2},)}]
main(__file__)
