# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/198100"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises IndexError('list index out of range')"
# keys.aot_eager = "(exception, forward, IndexError: list index out of range)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.zero_()
    v0.unsqueeze_(0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
