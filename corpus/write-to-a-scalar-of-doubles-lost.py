# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "values of a0 after forward of call 1: eager 0.0 at [0] (1 of 1 elements differ), compiled 1.0"
# note = "a write to a float64 input of no dimensions is lost"
# keys.aot_eager = "(values, input)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float64, device)
    a0 = strided(s0, torch.float64, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
