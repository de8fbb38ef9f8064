# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/110842"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('The size of tensor a (2) must match the size of tensor b (0) at non-singleton dimension 0')"
# keys.aot_function = "(exception, forward, RuntimeError: The size of tensor a [N] must match the size of tensor b [N] at non-singleton dimension N)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    x0.set_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
