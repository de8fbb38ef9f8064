# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('any_leaf=True != all_leaf=False for outer_indices=[0, 1]')"
# keys.aot_function = "(exception, forward, AssertionError: any_leaf=True != all_leaf=False for outer_indices=[N])"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.t()
    return (a1, a0), named(locals())

def f(x0, x1):
    WritesUnmarked.apply(x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
