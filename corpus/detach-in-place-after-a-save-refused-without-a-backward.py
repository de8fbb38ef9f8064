# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Trying to use a saved tensor that has been detached in-place, i.e. with .detach_().This is not supported, please use out-of-place `.detach()` instead')"
# keys.aot_function = "(exception, forward, RuntimeError: Trying to use a saved tensor that has been detached in-place, i.e)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a0), named(locals())

def f(x0, x1):
    v0 = x0.maximum(x1)
    x0.detach_()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
