# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "shape of a0 after forward of call 1: eager (), compiled (1,)"
# keys.aot_function = "(shape, input, both raise)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    a1 = strided(s1, torch.float32, (2,), (1,), 0)
    a2 = a0.zero_()
    return (a2, a1), named(locals())

def f(x0, x1):
    x0.squeeze_()
    v0 = torch.ones((0,))
    torch.add(x1, v0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
