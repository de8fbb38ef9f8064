# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after grad of call 2: eager raises nothing, compiled raises RuntimeError('Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved intermediate values of the graph are freed when you call .backward() or ')"
# keys.aot_function = "(exception, grad, later call, RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed))"
# keys.aot_eager = "(exception, grad, later call, RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed))"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.sum()
    return v0
CALLS = [
    {"inputs": make_inputs_0},
    {"inputs": None, "steps": (
        {"do": "backward", "roots": (0,), "calls_ago": 1},
        {"do": "backward", "roots": (0,), "way": "grad", "calls_ago": 1},
    )},
]
main(__file__)
