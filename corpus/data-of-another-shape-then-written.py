# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError(\u0022shape '[]' is invalid for input of size 2\u0022)"
# keys.aot_function = "(exception, forward, RuntimeError: shape 'X' is invalid for input of size N)"
# keys.aot_eager = "(exception, forward, AssertionError: Encountered a set_ on a graph input, but the input has other mutations that we cannot)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = torch.mul(a0, 0)
    return (a1,), named(locals())

def f(x0):
    v0 = x0.sum()
    x0.data = v0
    x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
