# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises ValueError('Attempting to permute a tensor of rank 1, but received a permutation of length 0!')"
# keys.aot_function = "(exception, forward, ValueError: Attempting to permute a tensor of rank N, but received a permutation of length N!)"
# keys.aot_eager = "(exception, forward, ValueError: Attempting to permute a tensor of rank N, but received a permutation of length N!)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s1, torch.float32, (), (), 0)
    a1 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a1, a0), named(locals())

def f(x0, x1):
    x0.data = x1
    x0.T
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
