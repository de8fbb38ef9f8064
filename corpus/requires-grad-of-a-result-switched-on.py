# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/99455"
# difference = "requires-grad of output after forward of call 1: eager True, compiled False"
# keys.aot_function = "(requires-grad, output)"
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
    v0.requires_grad_()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
