# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "identity of output after forward of call 1: eager is the same object as a0, compiled is the same object as a1"
# keys.aot_function = "(identity, output-input vs another output-input)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = a0.detach()
    return (a0, a1), named(locals())

def f(x0, x1):
    x1.data = x0
    return x0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
