# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Attempting to broadcast a dimension of length 2 at -1! Mismatching argument at index 1 had torch.Size([2]); but expected shape should be broadcastable to [3]')"
# keys.aot_function = "(exception, forward, RuntimeError: Attempting to broadcast a dimension of length N at N! Mismatching argument at index N had torch.Size([N]); but expected ...)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    s1 = storage([0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    a1 = strided(s1, torch.float32, (3,), (1,), 0)
    return (a1, a0), named(locals())

def f(x0, x1):
    x1.data = x0
    torch.ne(x0, x1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
