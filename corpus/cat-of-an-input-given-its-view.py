# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Number of dimensions of tensors must match.  Expected 0-D tensors, but got 1-D for tensor number 0 in the list')"
# keys.aot_function = "(exception, forward, RuntimeError: Number of dimensions of tensors must match)"
# keys.aot_eager = "(shape, input)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.view((1,))
    x0.data = v0
    torch.cat([v0, x0])
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
