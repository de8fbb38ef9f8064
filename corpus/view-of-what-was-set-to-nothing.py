# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Expected index torch.Size([1]) to be no larger than src torch.Size([0])')"
# keys.aot_function = "(exception, forward, RuntimeError: Expected index torch.Size([N]) to be no larger than src torch.Size([N]))"
# keys.aot_eager = "(exception, forward, RuntimeError: Expected index torch.Size([N]) to be no larger than src torch.Size([N]))"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.neg(x0)
    v1 = v0[1:]
    v0.set_()
    v1.add_(1)
    v2 = torch.tensor([0], device=x0.device)
    v3 = torch.scatter(v1, 0, v2, v1)
    return v3
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
