# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('self.shape_env must not be None')"
# keys.aot_function = "(exception, forward, AssertionError: self.shape_env must not be None)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    a1 = wrapped.jagged(a0)
    return (a1,), named(locals())

def f(x0):
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
