# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 20262503 --strategy strategies:mixed"
# issue = "not looked up"
# difference = "requires-grad of a2 after probe of call 1: eager True, compiled False"
# keys.aot_function = "(requires-grad, input after probe)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    a1 = wrapped.jagged(a0)
    a1.requires_grad_()
    a2 = a1[0]
    return (a2,), named(locals())

def f(x0):
    x0.requires_grad_()
    return None
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "probe", "site": "input", "index": 0, "seed": 1},)}]
main(__file__)
