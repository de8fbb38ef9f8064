# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 62 --examples 2000, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('a view of a leaf Variable that requires grad is being used in an in-place operation.')"
# keys.aot_function = "(exception, forward, RuntimeError: a view of a leaf Variable that requires grad is being used in an in-place operation)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.t()
    return (a1,), named(locals())

def f(x0):
    with torch.no_grad():
        x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
