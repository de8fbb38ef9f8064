# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/186355"
# difference = "gradient-none of a0.grad after backward of call 2: eager None, compiled torch.float32 of shape ()"
# keys.aot_function = "(gradient-none, gradient after backward, later call)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a1), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a1), named(locals())

def f(x0, x1):
    WritesUnmarked.apply(x0)
    v0 = torch.neg(x1)
    return v0
CALLS = [
    {"inputs": make_inputs_0},
    {"inputs": make_inputs_1, "steps": ({"do": "backward", "roots": (0,), "graph": "retained"},)},
]
main(__file__)
