# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 32 --examples 1500, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/197448"
# difference = "values of output after forward of call 1: eager -4.0 at [0] (1 of 1 elements differ), compiled -8.0"
# note = "a fill through an expanded tensor is applied once for each of its elements"
# keys.aot_function = "(values, output)"
# keys.aot_eager = "(values, output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([-2], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.tensor([0])
    v3 = v0.expand((2, 1))
    v3.fill_(2)
    v5 = torch.mul(x0, v0)
    return v5
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
