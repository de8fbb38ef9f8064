# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/118739"
# difference = "exception of call after backward 2 of call 1: eager raises RuntimeError('Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved intermediate values of the graph are freed when you call .backward() or '), compiled raises nothing"
# keys.aot_function = "(exception, backward, missing RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed))"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    a2 = torch.mul(a1, 0)
    return (a0, a2), named(locals())

def f(x0, x1):
    ComposedInPlace.apply(x0, x1, "product", "nothing", "copy", "quietly", False)
    return x1
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "backward", "roots": (0,)},
        {"do": "backward", "roots": (0,), "inputs": (1,)},
    )},
]
main(__file__)
