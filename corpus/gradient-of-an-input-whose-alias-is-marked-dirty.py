# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "gradient-none of result[1] after grad of call 2: eager torch.float32 of shape (), compiled None"
# note = "an alias of an input that a custom Function marks dirty gets no gradient"
# keys.aot_function = "(gradient-none, result after grad, later call)"
# keys.aot_eager = "(exception, forward, AssertionError: outs_to_grad length [N] != tangents length [N])"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    a2 = a1.view(())
    return (a1, a2), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    a2 = a1.view(())
    return (a1, a2), named(locals())

def f(x0, x1):
    MarksDirty.apply(x0)
    v0 = torch.relu(x1)
    return v0
CALLS = [
    {"inputs": make_inputs_0},
    {"inputs": make_inputs_1, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)},
]
main(__file__)
