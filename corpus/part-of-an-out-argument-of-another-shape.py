# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises IndexError('select() cannot be applied to a 0-dim tensor.')"
# keys.aot_function = "(exception, forward, IndexError: select() cannot be applied to a N-dim tensor)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (1,), (1,), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = x1[0]
    torch.mul(x0, 0, out=x1)
    torch.add(x0, v0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
