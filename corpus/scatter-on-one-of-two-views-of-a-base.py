# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('outs_to_grad length (1) != tangents length (2)')"
# keys.aot_function = "(exception, forward, AssertionError: outs_to_grad length [N] != tangents length [N])"
# keys.aot_eager = "(exception, forward, AssertionError: outs_to_grad length [N] != tangents length [N])"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, -1, 2, 0, -2, 1, -1, 2, 0, -2, 1, -1, 2, 0, -2, 1, -1, 2, 0, -2, 1, -1, 2, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 3, 4), (12, 4, 1), 0, requires_grad=True)
    a1 = torch.mul(a0, 2)
    a2 = a1.unsqueeze(0)
    return (a1, a2), named(locals())

def f(x0, x1):
    v0 = torch.tensor([[[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2]], [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2]]])
    x0.scatter_(1, v0, 2)
    x1.remainder_(2)
    return x0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
