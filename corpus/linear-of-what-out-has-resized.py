# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('a and b must have same reduction dim, but got [1, 1] X [2, 0].')"
# keys.aot_function = "(exception, forward, RuntimeError: a and b must have same reduction dim, but got [N] X [N])"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0, 0], torch.float32, device)
    s2 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (2,), (1,), 0)
    a2 = strided(s2, torch.float32, (0, 2), (2, 1), 0)
    return (a0, a1, a2), named(locals())

def f(x0, x1, x2):
    v0 = x1.clone()
    v1 = v0[:1]
    torch.cumsum(x1, 0, out=v1)
    Module.linear(v1, x2, x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
