# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "requires-grad of result[0] after grad of call 2: eager True, compiled False"
# keys.aot_function = "(requires-grad, result after grad, later call)"
# keys.aot_eager = "(requires-grad, result after grad, later call)"
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
    v1 = x0.clone()
    return (v1, v0)
CALLS = [
    {"inputs": make_inputs_0},
    {"inputs": None, "steps": ({"do": "backward", "roots": (0,), "cotangents": (("trained", 0),), "way": "grad"},)},
]
main(__file__)
