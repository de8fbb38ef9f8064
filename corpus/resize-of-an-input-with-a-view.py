# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Attempted to resize a view tensor to a larger size. This is not allowed in the functionalization pass')"
# keys.aot_function = "(exception, forward, RuntimeError: Attempted to resize a view tensor to a larger size)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.detach()
    x0.resize_((2,))
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
