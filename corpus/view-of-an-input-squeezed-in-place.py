# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/121007"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises IndexError('Dimension out of range (expected to be in range of [-1, 0], but got 1)')"
# keys.aot_function = "(exception, forward, IndexError: Dimension out of range (expected to be in range of [N], but got N))"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1), (1, 1), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    v0 = x0.transpose(0, 1)
    x0.squeeze_()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
