# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "rng of process after forward of call 1: eager leaves the generator in one state, compiled in another"
# note = "dropout with probability 1 leaves the generator in another state"
# keys.aot_function = "(rng, process)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    torch.nn.functional.dropout(x0, p=1.0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
