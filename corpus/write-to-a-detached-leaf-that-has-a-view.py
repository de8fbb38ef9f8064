# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3104, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('any_leaf=True != all_leaf=False for outer_indices=[0, 1]')"
# keys.aot_function = "(exception, forward, AssertionError: any_leaf=True != all_leaf=False for outer_indices=[N])"
# keys.aot_eager = "(exception, forward, RuntimeError: a view of a leaf Variable that requires grad is being used in an in-place operation)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.t()
    return (a1, a0), named(locals())

def f(x0, x1):
    v0 = x0.detach()
    v0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
