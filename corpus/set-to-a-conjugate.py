# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/122981"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('Encountered a set_ on a graph input, but the input has other mutations that we cannot')"
# keys.aot_function = "(exception, forward, AssertionError: Encountered a set_ on a graph input, but the input has other mutations that we cannot)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3, 4], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v1 = x0.clone()
    v0 = v1.conj()
    x0.set_(v0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
