# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('False != True')"
# keys.aot_eager = "(exception, forward, AssertionError: False != True)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s1, torch.float32, (), (), 0)
    a1 = strided(s0, torch.float32, (), (), 0)
    a1.requires_grad_()
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = x0.t()
    v0.data = x0
    x0.copy_(x1)
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
