# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('a view of a leaf Variable that requires grad is being used in an in-place operation.')"
# keys.aot_function = "(exception, forward, RuntimeError: a view of a leaf Variable that requires grad is being used in an in-place operation)"
# keys.aot_eager = "(exception, forward, RuntimeError: a view of a leaf Variable that requires grad is being used in an in-place operation)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, -1], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = a0.view((2,))
    return (a1,), named(locals())

def f(x0):
    x0.logical_not_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
