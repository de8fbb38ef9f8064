# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/118739"
# difference = "exception of call after backward of call 2: eager raises nothing, compiled raises RuntimeError('Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved intermediate values of the graph are freed when you call .backward() or ')"
# keys.aot_function = "(exception, backward, later call, RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed))"
# keys.aot_eager = "(exception, backward, later call, RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed))"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a1), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = torch.neg(x0)
    return v0
CALLS = [
    {"inputs": make_inputs_0},
    {"inputs": make_inputs_1, "steps": (
        {"do": "backward", "roots": (0,), "way": "grad"},
        {"do": "backward", "roots": (0,)},
    )},
]
main(__file__)
