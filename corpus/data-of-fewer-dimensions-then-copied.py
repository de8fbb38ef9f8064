# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('expand: the requested shape has too few dimensions!')"
# keys.aot_function = "(exception, forward, RuntimeError: expand: the requested shape has too few dimensions!)"
# keys.aot_eager = "(exception, forward, AssertionError: Encountered a set_ on a graph input, but the input has other mutations that we cannot)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (1,), (1,), 0)
    return (a1, a0), named(locals())

def f(x0, x1):
    x1.data = x0
    x1.copy_(x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
