# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('torch.hsplit requires a tensor with at least 1 dimension, but got a tensor with 0 dimensions!')"
# keys.aot_function = "(exception, forward, RuntimeError: torch.hsplit requires a tensor with at least N dimension, but got a tensor with N dimensions!)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    torch.stack([x0], out=v0)
    torch.hsplit(v0, 1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
