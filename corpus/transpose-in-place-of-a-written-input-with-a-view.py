# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/49825"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Function SumBackward0 returned an invalid gradient at index 0 - got [3, 0] but expected shape compatible with [0, 3]')"
# keys.aot_function = "(exception, forward, RuntimeError: Function X returned an invalid gradient at index N - got [N] but expected shape compatible with [N])"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (0, 3), (3, 1), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    v0 = x0.t()
    x0.zero_()
    x0.t_()
    v1 = v0.sum()
    return v1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
