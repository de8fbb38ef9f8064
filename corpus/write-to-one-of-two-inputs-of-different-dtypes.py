# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/194747"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('aot_autograd() does not yet handle input mutations on views with different dtypes.')"
# keys.aot_function = "(exception, forward, AssertionError: aot_autograd() does not yet handle input mutations on views with different dtypes)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s0, torch.int64, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
