# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "values of output after grad of call 1: eager 1.0 at [0] (1 of 1 elements differ), compiled 0.0"
# note = "the caller multiplies a returned part by 0; after the backward it has its old value"
# keys.aot_function = "(values, output after grad)"
# keys.aot_eager = "(values, output after grad)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    a0.requires_grad_()
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    v1, v2 = torch.chunk(v0, 2)
    return v1
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "probe", "site": "output", "index": 0, "seed": 0, "how": "grad"},
        {"do": "backward", "roots": (0,), "way": "grad"},
    )},
]
main(__file__)
