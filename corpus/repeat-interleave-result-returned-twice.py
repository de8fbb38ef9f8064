# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises IndexError('list index out of range')"
# keys.aot_function = "(exception, forward, IndexError: list index out of range)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    s1 = storage([1], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0, requires_grad=True)
    a3 = strided(s1, torch.float32, (), (), 0)
    a4 = a3.t()
    return (a0, a3, a4), named(locals())

def f(x0, x2, x3):
    v3 = x2.zero_()
    v6 = torch.repeat_interleave(x0, 1, 0)
    return (v6, v6)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
