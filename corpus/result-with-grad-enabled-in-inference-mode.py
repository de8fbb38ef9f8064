# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "requires-grad of output after forward of call 1: eager False, compiled True"
# keys.aot_eager = "(requires-grad, output)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    with torch.enable_grad():
        v0 = x0.clone()
    return v0
CALLS = [{"inputs": make_inputs_0, "grad_mode": "inference"}]
main(__file__)
