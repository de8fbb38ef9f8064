# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('index 1 is out of bounds for dimension 0 with size 1')"
# keys.aot_function = "(exception, forward, RuntimeError: index N is out of bounds for dimension N with size N)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (2,), (1,), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.data = x1
    v0 = torch.tensor([1])
    v1 = torch.scatter(x0, 0, v0, x0)
    return v1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
