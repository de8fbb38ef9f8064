# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "structure of output after forward of call 1: eager Tensor, compiled NoneType"
# note = "`torch.autograd.grad` inside, with respect to a written input, gives None"
# keys.aot_eager = "(structure, output)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = torch.mul(a0, 1)
    return (a1,), named(locals())

def f(x0):
    x0.mul_(2)
    v0 = torch.mul(x0, 2)
    v6 = torch.ones_like(x0)
    v7, = torch.autograd.grad([v0], [x0], [v6], allow_unused=True)
    return v7
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
