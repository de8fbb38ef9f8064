# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/146212"
# difference = "gradient-none of a1.grad after grad of call 2: eager torch.float32 of shape (), compiled None"
# keys.aot_function = "(gradient-none, gradient after grad, later call)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    x0.retain_grad()
    return x0
CALLS = [{"inputs": make_inputs_0}, {"inputs": None, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
