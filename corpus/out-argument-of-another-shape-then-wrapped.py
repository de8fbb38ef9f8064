# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('Expected a.shape == b.shape, got torch.Size([1, 0]) != torch.Size([1, 1])')"
# keys.aot_function = "(exception, forward, AssertionError: Expected a.shape == b.shape, got torch.Size([N]) != torch.Size([N]))"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1), (1, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    v1 = torch.ones((1, 0))
    torch.mm(x0, v1, out=v0)
    wrapped.two(v1, v0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
