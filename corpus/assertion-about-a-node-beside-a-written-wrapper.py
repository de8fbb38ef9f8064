# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('Node flip_1 was invalid, but is output')"
# keys.aot_eager = "(exception, forward, AssertionError: Node V was invalid, but is output)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.int64, device)
    s1 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.int64, (1, 2), (2, 1), 0)
    a1 = strided(s1, torch.float32, (2,), (1,), 0, requires_grad=True)
    a2 = wrapped.differentiable(a1)
    return (a0, a2), named(locals())

def f(x0, x1):
    x1.cumsum_(0)
    v0 = x0.zero_()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
