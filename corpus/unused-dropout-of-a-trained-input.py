# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('Expected native_dropout to be a tensor')"
# keys.aot_function = "(exception, forward, AssertionError: Expected V to be a tensor)"
# keys.aot_eager = "(rng, process)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.lerp(x0, x0, 0.5)
    torch.nn.functional.dropout(x0)
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
