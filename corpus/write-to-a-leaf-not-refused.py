# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/90850"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('a leaf Variable that requires grad is being used in an in-place operation.'), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: a leaf Variable that requires grad is being used in an in-place operation)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
