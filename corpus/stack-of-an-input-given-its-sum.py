# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('stack expects each tensor to be equal size, but got torch.Size([1]) at entry 0 ')"
# keys.aot_function = "(exception, forward, RuntimeError: stack expects each tensor to be equal size, but got torch.Size([N]) at entry N)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.sum()
    x0.data = v0
    torch.stack([x0, v0])
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
