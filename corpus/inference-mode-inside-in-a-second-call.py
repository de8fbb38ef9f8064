# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "inference of output after forward of call 2: eager True, compiled False"
# keys.aot_eager = "(inference, output, later call)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    with torch.inference_mode():
        v0 = x0.clone()
    return v0
CALLS = [{"inputs": make_inputs_0, "grad_mode": "inference"}, {"inputs": None}]
main(__file__)
