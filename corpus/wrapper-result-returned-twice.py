# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('torch.compile is currently being used with tensor subclass inputs.')"
# keys.aot_function = "(exception, forward, AssertionError: torch.compile is currently being used with tensor subclass inputs)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1), (1, 1), 0, requires_grad=True)
    a1 = wrapped.differentiable(a0)
    return (a1,), named(locals())

def f(x0):
    v0 = torch.einsum("ij,kj->ik", x0, x0)
    return (v0, v0)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
