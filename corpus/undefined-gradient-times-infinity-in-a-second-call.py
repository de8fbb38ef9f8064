# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/186355"
# difference = "values of a0.grad after backward of call 2: eager 1.0 at [0] (2 of 2 elements differ), compiled nan"
# keys.aot_function = "(values, gradient after backward, later call, infinite or NaN)"
# keys.aot_eager = "(values, gradient after backward, later call, infinite or NaN)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 1], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())
def make_inputs_1(device):
    s0 = storage([0, 1], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    v1 = torch.mul(x0, float("inf"))
    return (v0, v1)
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
