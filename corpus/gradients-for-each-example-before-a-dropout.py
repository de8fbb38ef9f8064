# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 56 --strategy forms_stream:forms"
# issue = "ours"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises ValueError('not enough values to unpack (expected 1, got 0)')"
# keys.aotcheck = "(exception, forward, ValueError: not enough values to unpack (expected N, got N))"
# keys.aot_function = "(exception, forward, AssertionError: Expected V to be a tensor)"
# keys.aot_eager = "(rng, process)"
# expect.aotcheck."2.13.0" = "differs"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = Transform.per_sample(x0, x0)
    Module.dropout(x0, True)
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
