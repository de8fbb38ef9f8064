# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after backward of call 1: eager raises RuntimeError('Function TBackward1 returned an invalid gradient at index 0 - got [2, 1] but expected shape compatible with [2]'), compiled raises nothing"
# keys.aot_function = "(exception, backward, missing RuntimeError: Function X returned an invalid gradient at index N - got [N] but expected shape compatible with [N])"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    with torch.no_grad():
        x0.unsqueeze_(1)
    x0.t_()
    return x0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
