# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises TypeError('len() of a 0-d tensor'), compiled raises IndexError('tuple index out of range')"
# keys.aot_eager = "(exception, forward, IndexError: tuple index out of range)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v7 = wrapped.jagged(x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
