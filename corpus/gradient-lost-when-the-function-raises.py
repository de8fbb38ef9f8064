# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "gradient-none of a0.grad after forward of call 1: eager torch.float32 of shape (2,), compiled None"
# note = "a backward inside, then an error: the accumulated gradient is lost"
# keys.aot_function = "(gradient-none, gradient, both raise)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 1], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.ones_like(x0)
    x0.backward(v0)
    v9 = torch.ones((7,), device=x0.device)
    v0.copy_(v9)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
