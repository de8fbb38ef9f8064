# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('expected src to have a size equal to the slice of self. src size = [0], slice size = []')"
# keys.aot_function = "(exception, forward, RuntimeError: expected src to have a size equal to the slice of self)"
# keys.aot_eager = "(exception, forward, RuntimeError: expected src to have a size equal to the slice of self)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0[0]
    v0.set_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
