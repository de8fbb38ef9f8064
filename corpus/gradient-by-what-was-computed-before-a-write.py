# /// aotcheck
# format = 2
# found = "aotcheck zoo --backend aot_eager, buffer_that_counts, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/197039"
# difference = "values of a0.grad after backward of call 1: eager 1.0 at [0] (2 of 2 elements differ), compiled 4.0"
# note = "the backward computes a value again, from a buffer that was written since"
# keys.aot_eager = "(values, gradient after backward)"
# keys.inductor = "(values, gradient after backward)"
# expect.aot_eager."2.13.0" = "differs"
# expect.inductor."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    s1 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (2,), (1,), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = torch.square(x1)
    v1 = torch.mul(x0, v0)
    x1.add_(1)
    return v1
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
