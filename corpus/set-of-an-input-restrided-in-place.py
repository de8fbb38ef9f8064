# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('a must be 2D')"
# keys.aot_function = "(exception, forward, RuntimeError: a must be ND)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0], torch.float32, device)
    s1 = storage([0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 2), (2, 1), 0)
    a1 = strided(s1, torch.float32, (2, 2), (2, 1), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = x0.as_strided_((1,), (1,), 2)
    v1 = torch.neg(x1)
    v0.set_(v1)
    v2 = torch.nn.functional.linear(v0, x1)
    return v2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
