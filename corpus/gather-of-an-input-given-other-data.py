# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Index tensor must have the same number of dimensions as input tensor')"
# keys.aot_function = "(exception, forward, RuntimeError: Index tensor must have the same number of dimensions as input tensor)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (1, 1), (1, 1), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.data = x1
    v0 = torch.tensor([[0]])
    torch.gather(x0, 0, v0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
