# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "values of a0.grad after backward of call 1: eager 1.0 at [], compiled 0.0"
# note = "the gradient through an input that was written under `no_grad` is zero"
# keys.aot_function = "(values, gradient after backward)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    with torch.no_grad():
        x0.zero_()
    return x0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
