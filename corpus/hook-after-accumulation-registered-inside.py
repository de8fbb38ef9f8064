# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 62 --examples 2000, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('post accumulate grad hooks cannot be registered on non-leaf tensors')"
# keys.aot_function = "(exception, forward, RuntimeError: post accumulate grad hooks cannot be registered on non-leaf tensors)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    Inside.negates_after(x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
