# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --seed 2"
# issue = "ours"
# difference = "a backward checked saved tensors that it does not use"
# keys.aotcheck = "(exception, backward, later call)"
# keys.aot_function = "(identity, output-input vs none)"
# keys.aot_eager = "(exception, backward, later call, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([-2, 0, 2, -1, 1, -2, 0, 2, -1, 1, -2, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (4, 1, 3), (3, 3, 1), 0, requires_grad=True)
    a1 = torch.mul(a0, 2)
    a2 = a1[:, 0]
    return (a1, a2), named(locals())

def f(x0, x1):
    torch._foreach_add_([x1], 2)
    v0 = x1.to(torch.float64)
    with torch.enable_grad():
        v1 = torch.square(v0)
    x1.clamp_(0, 2)
    return (v1, v0, x1, v0)
CALLS = [
    {"inputs": make_inputs_0, "steps": ({"do": "probe", "site": "output", "index": 3, "seed": 2},)},
    {"inputs": None, "steps": ({"do": "backward", "roots": (0,), "cotangents": (("pattern", 1),)},)},
]
main(__file__)
