# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "metadata of result[0] after grad of call 1: eager ('tag', 4), compiled ('tag', 1)"
# keys.aot_function = "(metadata, result after grad)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = wrapped.tagged(a0)
    a1.requires_grad_()
    return (a1,), named(locals())

def f(x0):
    v0, v1 = Composed.apply(x0, x0, "product", "nothing", "input", "nothing", False)
    v2 = v1.t()
    return v2
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
