# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 62 --examples 2000, reduced"
# issue = "none found"
# difference = "requires-grad of output after forward of call 1: eager True, compiled False"
# keys.aot_function = "(requires-grad, output)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([0], torch.float32, device)
    a3 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    return (a3,), named(locals())

def f(x0):
    v4 = x0.swapaxes(0, 0)
    return v4
CALLS = [{"inputs": make_inputs_0, "grad_mode": "inference"}]
main(__file__)
