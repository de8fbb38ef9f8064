# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/198095"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError(\u0022shape '[4]' is invalid for input of size 12\u0022)"
# keys.aot_function = "(exception, forward, RuntimeError: shape 'X' is invalid for input of size N)"
# keys.aot_eager = "(exception, forward, RuntimeError: shape 'X' is invalid for input of size N)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1], torch.int64, device)
    a0 = strided(s0, torch.int64, (4,), (1,), 0)
    a1 = strided(s0, torch.int64, (2, 2), (2, 1), 0)
    a2 = strided(s0, torch.int64, (4,), (1,), 2)
    return (a0, a1, a2), named(locals())

def f(x0, x1, x2):
    v0 = x0.zero_()
    v1 = torch.trace(x1)
    v7 = v0.view_as(x0)
    return (v7,)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
