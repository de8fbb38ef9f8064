# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/114338"
# difference = "requires-grad of output after forward of call 2: eager True, compiled False"
# keys.aot_eager = "(requires-grad, output, later call)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = a0.t()
    a1.requires_grad_()
    return (a1,), named(locals())

def f(x0):
    with torch.enable_grad():
        v0 = x0.t()
    return v0
CALLS = [{"inputs": make_inputs_0}, {"inputs": None, "grad_mode": "no_grad"}]
main(__file__)
