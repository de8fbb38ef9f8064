# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after backward of call 2: eager raises RuntimeError('derivative for set_ is not implemented'), compiled raises nothing"
# keys.aot_function = "(exception, backward, later call, missing RuntimeError: derivative for set_ is not implemented)"
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
    x0.set_(x0)
    return x0
CALLS = [{"inputs": make_inputs_0}, {"inputs": None, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
