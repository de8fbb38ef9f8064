# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "gradient-none of a1.grad after backward of call 2: eager None, compiled torch.float32 of shape (0,)"
# note = "the inner tensor of a wrapper made inside gets a gradient of zeros in place of None"
# keys.aot_eager = "(gradient-none, gradient after backward, later call)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([-2, 0, 2, -1, 1, -2, 0, 2, -1, 1, -2, 0], torch.float32, device)
    s1 = storage([-1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 3, 2, 1), (6, 2, 1, 1), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (0,), (1,), 2, requires_grad=True)
    return (a0, a1), named(locals())
def make_inputs_1(device):
    s0 = storage([0, 2, -1, 1, -2, 0, 2, -1, 1, -2, 0, 2], torch.float32, device)
    s1 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 3, 2, 1), (6, 2, 1, 1), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (0,), (1,), 0, requires_grad=True)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = wrapped.tagged(x1)
    v0.clamp_(-1, 1)
    v6 = torch.neg(x0)
    return (v6,)
CALLS = [
    {"inputs": make_inputs_0},
    {"inputs": make_inputs_1, "steps": (
        {"do": "backward", "roots": (0,), "cotangents": (("pattern", 2),), "graph": "retained"},
    )},
]
main(__file__)
