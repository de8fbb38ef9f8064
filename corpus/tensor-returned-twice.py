# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "identity of output[1] after forward of call 1: eager is the same object as output[0], compiled is the same object as nothing before it"
# keys.aot_function = "(identity, output-output vs none)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.detach()
    return (v0, v0)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
