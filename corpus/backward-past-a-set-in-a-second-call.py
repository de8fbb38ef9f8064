# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after backward of call 2: eager raises nothing, compiled raises RuntimeError('derivative for set_ is not implemented')"
# keys.aot_eager = "(exception, backward, later call, RuntimeError: derivative for set_ is not implemented)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3], torch.float32, device)
    a0 = strided(s0, torch.float32, (3,), (1,), 0)
    return (a0, a0), named(locals())
def make_inputs_1(device):
    s0 = storage([2, -2, -1], torch.float32, device)
    s1 = storage([2], torch.float32, device)
    a0 = strided(s0, torch.float32, (3,), (1,), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    b1 = a1.clone()
    return (a0, b1), named(locals())

def f(x0, x1):
    x1.set_(x0)
    v0 = torch.sub(x0, x1)
    v6 = x0.clone()
    return (v6, v0)
CALLS = [
    {"inputs": make_inputs_0, "grad_mode": "inference"},
    {"inputs": make_inputs_1, "steps": (
        {"do": "backward", "roots": (0,), "cotangents": (("pattern", 2), ("pattern", 0)), "graph": "retained"},
    )},
]
main(__file__)
