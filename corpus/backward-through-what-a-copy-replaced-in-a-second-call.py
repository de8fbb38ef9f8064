# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend inductor --device cpu --seed 40 --strategy strategies:realistic"
# issue = "not looked up"
# difference = "exception of call after backward of call 2: eager raises nothing, compiled raises RuntimeError('Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved intermediate values of the graph are freed when you call .backward() or ')"
# keys.aot_eager = "(exception, backward, later call, RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed))"
# keys.inductor = "(exception, backward, later call, RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed))"
# expect.aot_eager."2.13.0" = "differs"
# expect.inductor."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.copy_(x1)
    return x0
CALLS = [
    {"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)},
    {"inputs": None, "steps": ({"do": "backward", "roots": (0,)},)},
]
main(__file__)
