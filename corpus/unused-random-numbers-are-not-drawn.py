# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 62 --examples 2000, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/143431"
# difference = "rng of process after grad of call 1: eager leaves the generator in one state, compiled in another"
# note = "random numbers that nobody uses are not drawn, so all later ones are others"
# keys.aot_function = "(rng, process after grad)"
# keys.aot_eager = "(rng, process)"
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
    v0 = x0.clone()
    torch.randint(0, 1, ())
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
