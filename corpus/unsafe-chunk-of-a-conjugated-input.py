# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --seed 0"
# issue = "ours"
# difference = "a result of unsafe_chunk did not require grad"
# keys.aotcheck = "(requires-grad, output)"
# keys.aot_function = "(exception, forward, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# keys.aot_eager = "(exception, forward, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (3, 2, 2), (4, 2, 1), 0, requires_grad=True)
    a1 = torch.mul(a0, 2)
    a2 = a1.conj()
    return (a2,), named(locals())

def f(x0):
    v0 = torch.rot90(x0)
    v1 = torch.unsafe_chunk(x0, 3, 1)
    v2 = v1[1]
    v3 = v0.to(torch.complex64)
    v4, v5 = torch.chunk(v2, 2, 0)
    v6 = torch.tensor([0], device=x0.device)
    x0.index_add_(1, v6, v2)
    v7 = v6.gt_(v6)
    return (v7, v0, v7, v4, v0)
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "backward", "roots": (0, 1), "cotangents": (("pattern", 2),)},
        {"do": "probe", "site": "output", "index": 4, "seed": 2},
    )},
]
main(__file__)
