# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/143431"
# difference = "rng of process after backward of call 1: eager leaves the generator in one state, compiled in another"
# note = "aot_function draws numbers that nobody uses in the backward, aot_eager never"
# keys.aot_function = "(rng, process after backward)"
# keys.aot_eager = "(rng, process)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.mul(x0, x0)
    v1 = torch.randint_like(x0, 3)
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
