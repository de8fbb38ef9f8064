# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "dtype of a1 after forward of call 1: eager torch.float32, compiled torch.float64"
# keys.aot_function = "(dtype, input)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float64, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float64, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x1.data = x0
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
