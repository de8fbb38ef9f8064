# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after backward of call 1: eager raises RuntimeError('Output 0 of SplitWithSizes is a view and its base or another view of its base has been modified inplace. This view is the output of a function that returns multiple views. Such functions do not allow '), compiled raises nothing"
# keys.aot_function = "(exception, backward, missing RuntimeError: Output N of X is a view and its base or another view of its base has been modified inplace)"
# keys.aot_eager = "(leafness, output after probe)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (0,), (1,), 0, requires_grad=True)
    return ([a0, a0],), named(locals())

def f(x0):
    v0 = x0[0]
    v1 = v0.clone()
    v2, v3, v4 = torch.chunk(v1, 3)
    x0[0] = v1
    return v2
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "probe", "site": "output", "index": 0, "seed": 1},
        {"do": "backward", "roots": (0,)},
    )},
]
main(__file__)
