# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('a leaf Variable that requires grad is being used in an in-place operation.')"
# keys.aot_function = "(exception, forward, RuntimeError: a leaf Variable that requires grad is being used in an in-place operation)"
# keys.aot_eager = "(exception, forward, later call, AssertionError: N != N)"
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
    with torch.no_grad():
        x0.unsqueeze_(0)
    return x0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}, {"inputs": None}]
main(__file__)
