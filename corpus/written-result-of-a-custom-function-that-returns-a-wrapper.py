# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "identity of output after forward of call 1: eager is the same object as nothing before it, compiled is the same object as a1"
# keys.aot_eager = "(identity, none vs output-input)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    a1 = wrapped.constant(a0)
    return (a1,), named(locals())

def f(x0):
    v0 = ReturnsInput.apply(x0)
    v0.zero_()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
