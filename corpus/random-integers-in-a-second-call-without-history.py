# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/143431"
# difference = "rng of process after grad of call 2: eager leaves the generator in one state, compiled in another"
# note = "aot_function draws numbers that nobody uses in the backward, aot_eager never"
# keys.aot_function = "(rng, process after grad, later call)"
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
CALLS = [{"inputs": make_inputs_0}, {"inputs": None, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
