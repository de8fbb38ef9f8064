# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises IndexError('too many indices for tensor of dimension 1')"
# keys.aot_function = "(exception, forward, IndexError: too many indices for tensor of dimension N)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], torch.float32, device)
    s1 = storage([0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (4,), (2,), 0)
    a1 = strided(s1, torch.float32, (2, 2), (2, 1), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    torch.mm(x1, x1, out=x0)
    v0 = x0[-1, :]
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
