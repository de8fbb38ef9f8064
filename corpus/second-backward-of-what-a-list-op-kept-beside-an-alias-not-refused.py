# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 20262501 --strategy strategies:storages"
# issue = "not looked up"
# difference = "gradient-none of a0.grad after backward of call 1: eager torch.float32 of shape (5,), compiled None"
# note = "the base of a view that requires grad gets no gradient through `_foreach_mul`"
# keys.aot_function = "(gradient-none, gradient after backward)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (5,), (1,), 0)
    a1 = a0[0]
    a0.requires_grad_()
    a2 = a0[4:]
    a3 = a2.detach()
    a3.requires_grad_()
    return (a1, a3), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0, a0), named(locals())

def f(x0, x1):
    with torch.inference_mode():
        x0.zero_()
    x1.clone()
    v0, = torch._foreach_mul([x0], 0)
    return v0
CALLS = [
    {"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)},
    {"inputs": make_inputs_1, "steps": ({"do": "backward", "roots": (0,), "calls_ago": 1},)},
]
main(__file__)
