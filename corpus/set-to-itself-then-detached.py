# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError(\u0022expected TensorAlias, got <class 'torch.Tensor'>\u0022)"
# keys.aot_function = "(exception, forward, AssertionError: expected TensorAlias, got <class 'X'>)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = torch.mul(a0, 2)
    return (a1,), named(locals())

def f(x0):
    v0 = x0.set_(x0)
    v1 = v0.detach()
    return (v1, x0)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
