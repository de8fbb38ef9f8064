# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Expected index torch.Size([1, 1, 1, 2]) to be no larger than self torch.Size([1, 1, 1, 1]) apart from dimension 0')"
# keys.aot_function = "(exception, forward, RuntimeError: Expected index torch.Size([N]) to be no larger than self torch.Size([N]) apart from dimension N)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1, 1, 2), (2, 2, 2, 1), 0)
    a1 = strided(s1, torch.float32, (1, 1, 1, 1), (1, 1, 1, 1), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x1.data = x0
    v0 = x1.clone()
    v1 = torch.tensor([[[[0, 0]]]])
    v0.scatter_(0, v1, x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
