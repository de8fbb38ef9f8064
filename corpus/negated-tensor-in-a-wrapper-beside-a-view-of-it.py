# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('Node neg_1 was invalid, but is output')"
# keys.aot_function = "(exception, forward, AssertionError: Node V was invalid, but is output)"
# keys.aot_eager = "(exception, forward, AssertionError: Node V was invalid, but is output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.neg(x0)
    v1 = wrapped.constant(v0)
    v2 = v0.t()
    return (v2, v1)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
