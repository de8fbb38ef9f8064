# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/90850"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('a leaf Variable that requires grad is being used in an in-place operation.'), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: a leaf Variable that requires grad is being used in an in-place operation)"
# keys.aot_eager = "(requires-grad, input, both raise)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s1, torch.float32, (), (), 0)
    a1 = strided(s0, torch.float32, (), (), 0)
    a1.requires_grad_()
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.copy_(x1)
    x1.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
