# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/131794"
# difference = "exception of call after backward of call 2: eager raises nothing, compiled raises AttributeError(\u0022'Tensor' object has no attribute 'a'\u0022)"
# keys.aot_function = "(exception, backward, later call, AttributeError: 'X' object has no attribute 'X')"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a3 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    a1 = wrapped.differentiable(a0)
    return (a3, a1), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a3 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    a1 = wrapped.differentiable(a0)
    return (a3, a1), named(locals())

def f(x0, x1):
    v0 = torch.neg(x0)
    return (v0, x1)
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
