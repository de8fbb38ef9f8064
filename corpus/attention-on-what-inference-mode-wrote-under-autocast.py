# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 3 --strategy strategies:programs"
# issue = "ours"
# difference = "values of output after forward of call 2: eager 0.0 at [1, 0] (1 of 2 elements differ), compiled 0.73046875"
# keys.aotcheck = "(values, output, later call)"
# expect.aotcheck."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1), (1, 1), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (), (), 0)
    return (a0, a1), named(locals())
def make_inputs_1(device):
    s0 = storage([0, 1], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 1), (1, 1), 0, requires_grad=True)
    return (a0, a0), named(locals())

def f(x0, x1):
    with torch.inference_mode():
        x1.zero_()
    v0 = torch.nn.functional.scaled_dot_product_attention(x0, x0, x0)
    return v0
CALLS = [{"inputs": make_inputs_0, "around": ("autocast",)}, {"inputs": make_inputs_1, "around": ("autocast",)}]
main(__file__)
