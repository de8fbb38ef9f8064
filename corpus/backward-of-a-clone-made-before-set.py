# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "values of a0.grad after backward of call 1: eager 1.0 at [], compiled 0.0"
# note = "`y = x.clone(); x.set_(x)`: gradients of `y` are wrong, or \u0022derivative for set_ is not implemented\u0022"
# keys.aot_function = "(values, gradient after backward)"
# keys.aot_eager = "(exception, backward, RuntimeError: derivative for set_ is not implemented)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    v0 = x0.clone()
    x0.set_(x0)
    v1 = x0.clone()
    v2 = v0.clone()
    return (v1, x0, v2)
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (2,)},)}]
main(__file__)
