# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "identity of output after forward of call 2: eager is the same object as nothing before it, compiled is the same object as a0"
# keys.aot_eager = "(identity, none vs output-input, later call)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    torch.tensor([])
    v0 = ReturnsInput.apply(x0)
    return v0
CALLS = [{"inputs": make_inputs_0}, {"inputs": None, "grad_mode": "no_grad"}]
main(__file__)
