# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims')"
# keys.aot_function = "(exception, forward, RuntimeError: tensor_split expected at least a N-dimensional tensor, but got a tensor with N dims)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    a1 = strided(s1, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    torch.mul(x0, 0, out=x1)
    torch.tensor_split(x1, [])
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
