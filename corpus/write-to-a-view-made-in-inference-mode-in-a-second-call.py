# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "values of a0 after probe of call 2: eager 0.0 at [0] (1 of 1 elements differ), compiled 1.0"
# note = "after two calls that write the view, the caller's own next write is lost"
# keys.aot_function = "(values, input after probe, later call)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    with torch.inference_mode():
        a1 = a0.view((1,))
    return ([a1],), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    with torch.inference_mode():
        a1 = a0.view((1,))
    return ([a1],), named(locals())

def f(x0):
    v0 = x0[0]
    v1 = v0.clone()
    x0[0] = v1
    return None
CALLS = [
    {"inputs": make_inputs_0},
    {"inputs": make_inputs_1, "steps": ({"do": "probe", "site": "input", "index": 0, "seed": 0},)},
]
main(__file__)
