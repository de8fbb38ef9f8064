# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('expected src to have a size equal to the slice of self. src size = [2], slice size = [1]')"
# keys.aot_function = "(exception, forward, RuntimeError: expected src to have a size equal to the slice of self)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    s1 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    a1 = strided(s1, torch.float32, (2,), (1,), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v1 = x0[1:]
    torch.neg(x1, out=v1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
