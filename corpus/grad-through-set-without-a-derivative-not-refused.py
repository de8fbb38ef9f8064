# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "exception of call after grad of call 1: eager raises RuntimeError('derivative for set_ is not implemented'), compiled raises nothing"
# keys.aot_function = "(exception, grad, missing RuntimeError: derivative for set_ is not implemented)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = torch.mul(a0, 2)
    return (a1,), named(locals())

def f(x0):
    x0.set_(x0)
    v0 = torch.neg(x0)
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
