# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/114401"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('Expected 2 == 0')"
# keys.aot_function = "(exception, forward, AssertionError: Expected N == N)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = wrapped.constant(a0)
    return (a0, a0, a1), named(locals())

def f(x0, x1, x2):
    x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
