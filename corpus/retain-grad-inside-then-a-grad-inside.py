# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/146212"
# difference = "gradient-none of a1.grad after forward of call 1: eager torch.float32 of shape (), compiled None"
# keys.aot_function = "(gradient-none, gradient)"
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
    x0.retain_grad()
    v0 = torch.mul(x0, 2)
    v1 = torch.ones_like(v0)
    v2, = torch.autograd.grad([v0], [x0], [v1])
    return v2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
