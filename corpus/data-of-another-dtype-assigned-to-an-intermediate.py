# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "dtype of output after forward of call 1: eager torch.float32, compiled torch.bool"
# note = "an intermediate keeps its dtype after `x.data = y`"
# keys.aot_function = "(dtype, output)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 1], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.neg(x0)
    v1 = torch.eq(v0, x0)
    v1.data = v0
    return v1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
