# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Index tensor must have the same number of dimensions as src tensor')"
# keys.aot_function = "(exception, forward, RuntimeError: Index tensor must have the same number of dimensions as src tensor)"
# keys.aot_eager = "(exception, forward, AssertionError: Encountered a set_ on a graph input, but the input has other mutations that we cannot)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (0, 2), (2, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.sum()
    x0.data = v0
    v1 = x0.clone()
    v2 = torch.tensor([0])
    v0.scatter_add_(0, v2, v1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
