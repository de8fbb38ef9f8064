# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('Expected a.stride() == b.stride(), got (1, 1) != (2, 1)')"
# keys.aot_function = "(exception, forward, AssertionError: Expected a.stride() == b.stride(), got [N] != [N])"
# keys.aot_eager = "(exception, forward, AssertionError: Expected a.stride() == b.stride(), got [N] != [N])"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 2), (2, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v2 = torch.neg(x0)
    v0 = wrapped.two(x0, v2)
    v1 = x0.mT
    v1.logical_not_()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
