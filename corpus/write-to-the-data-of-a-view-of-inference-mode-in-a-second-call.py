# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "leafness of a1 after probe of call 2: eager True, compiled refused"
# keys.aot_eager = "(leafness, input after probe, later call)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    with torch.inference_mode():
        a1 = a0.t()
    return (a1,), named(locals())

def f(x0):
    v0 = x0.detach()
    v1 = v0.data
    return v1
CALLS = [
    {"inputs": make_inputs_0},
    {"inputs": make_inputs_1, "steps": ({"do": "probe", "site": "output", "index": 0, "seed": 1},)},
]
main(__file__)
