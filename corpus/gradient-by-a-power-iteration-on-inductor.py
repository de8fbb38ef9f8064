# /// aotcheck
# format = 2
# found = "aotcheck zoo --backend inductor, spectral_norm, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/197039"
# difference = "values of a0.grad after backward of call 1: eager 338.0 at [0, 0] (4 of 4 elements differ), compiled 778.0"
# note = "the backward makes a step of `spectral_norm` again, from the vector that the step has written"
# keys.inductor = "(values, gradient after backward)"
# expect.inductor."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3, 4], torch.float32, device)
    s1 = storage([1, 1], torch.float32, device)
    s2 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 2), (2, 1), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (2,), (1,), 0)
    a2 = strided(s2, torch.float32, (2,), (1,), 0)
    return (a0, a1, a2), named(locals())

def f(x0, x1, x2):
    with torch.no_grad():
        v0 = torch.mv(x0, x2)
        x2.add_(1)
        x1.copy_(v0)
    v1 = x1.clone()
    v2 = x2.clone()
    v3 = torch.mv(x0, v2)
    v4 = torch.dot(v1, v3)
    v5 = torch.mul(x0, v4)
    return v5
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
