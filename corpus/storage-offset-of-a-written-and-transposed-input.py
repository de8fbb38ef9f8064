# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "storage-offset of a0 after forward of call 1: eager 1, compiled 0"
# keys.aot_function = "(storage-offset, input)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.int64, device)
    a0 = strided(s0, torch.float32, (), (), 1)
    return (a0,), named(locals())

def f(x0):
    x0.zero_()
    x0.t_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
