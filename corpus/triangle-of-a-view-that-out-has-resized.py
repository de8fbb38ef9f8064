# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('tril: input tensor must have at least 2 dimensions')"
# keys.aot_function = "(exception, forward, RuntimeError: tril: input tensor must have at least N dimensions)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    a1 = strided(s1, torch.float32, (1,), (1,), 0)
    return (a1, a0), named(locals())

def f(x0, x1):
    v0 = x0[0]
    torch.stack([x1], out=v0)
    torch.tril(v0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
