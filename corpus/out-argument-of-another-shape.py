# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 62 --examples 2000, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('The size of tensor a (0) must match the size of tensor b (2) at non-singleton dimension 0')"
# keys.aot_function = "(exception, forward, RuntimeError: The size of tensor a [N] must match the size of tensor b [N] at non-singleton dimension N)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    s1 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    a1 = strided(s1, torch.float32, (0,), (1,), 0)
    return (a1, a0), named(locals())

def f(x0, x1):
    torch.add(x1, x1, out=x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
