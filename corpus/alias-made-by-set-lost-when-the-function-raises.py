# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "aliasing of a1 after forward of call 1: eager shares storage with a0, compiled shares storage with nothing before it"
# keys.aot_function = "(aliasing, input-input vs none, both raise)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.set_(x1)
    v9 = torch.ones((7,), device=x0.device)
    x0.copy_(v9)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
