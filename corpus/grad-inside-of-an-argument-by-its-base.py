# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3104, reduced"
# issue = "none found"
# difference = "structure of output after forward of call 1: eager tuple(Tensor, Tensor, Tensor), compiled list(NoneType, Tensor, Tensor)"
# note = "`torch.autograd.grad` inside, of an argument with respect to its base, gives None"
# keys.aot_function = "(structure, output)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([2, -2, -1], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1, 3), (3, 3, 1), 0, requires_grad=True)
    a1 = a0[::2]
    return (a0, a1), named(locals())

def f(x0, x1):
    v1 = torch.ones_like(x1)
    v2, = torch.autograd.grad([x1], [x0], [v1], create_graph=True, allow_unused=True)
    return (v2, x1, v1)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
