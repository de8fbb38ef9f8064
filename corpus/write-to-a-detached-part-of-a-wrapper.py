# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('Expected a.storage_offset() == b.storage_offset(), got 1 != 0')"
# keys.aot_function = "(exception, forward, AssertionError: Expected a.storage_offset() == b.storage_offset(), got N != N)"
# keys.aot_eager = "(exception, forward, AssertionError: Expected a.storage_offset() == b.storage_offset(), got N != N)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    a1 = wrapped.differentiable(a0)
    a2 = a1[1:]
    a3 = a2.detach()
    return (a0, a1, a3), named(locals())

def f(x1, x2, v0):
    v0.copy_(x1)
    x1.copy_(x1)
    x1.zero_()
    return v0
CALLS = [{"inputs": make_inputs_0, "around": ("anomaly", "saved tensors")}]
main(__file__)
