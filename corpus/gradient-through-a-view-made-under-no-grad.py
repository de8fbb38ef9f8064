# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "gradient-none of a0.grad after backward of call 1: eager None, compiled torch.float32 of shape ()"
# note = "an input gets a gradient through a view that was made under `no_grad`"
# keys.aot_function = "(gradient-none, gradient after backward)"
# keys.aot_eager = "(gradient-none, gradient after backward)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    with torch.no_grad():
        v0 = x0.t()
    v1 = v0.t()
    return v1
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
