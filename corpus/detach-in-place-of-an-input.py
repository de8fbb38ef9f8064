# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "requires-grad of a2 after forward of call 1: eager True, compiled False"
# keys.aot_function = "(requires-grad, input)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    a2 = strided(s0, torch.float32, (), (), 0)
    return (a2,), named(locals())

def f(x2):
    x2.requires_grad_()
    return x2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
