# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "identity of output after forward of call 1: eager is the same object as nothing before it, compiled is the same object as a0"
# keys.aot_function = "(identity, none vs output-input)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    x0.data = v0
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
