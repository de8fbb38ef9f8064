# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/pull/186111"
# difference = "exception of call after backward of call 2: eager raises nothing, compiled raises RuntimeError('one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor []] is at version 1; expected version 0 instead. Hint: enable anomaly detection to fi')"
# keys.aot_function = "(exception, backward, later call, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# keys.aot_eager = "(exception, backward, later call, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    x0.zero_()
    v0 = torch.relu(x0)
    return v0
CALLS = [
    {"inputs": make_inputs_0, "steps": ({"do": "probe", "site": "output", "index": 0, "seed": 1},)},
    {"inputs": None, "steps": ({"do": "backward", "roots": (0,)},)},
]
main(__file__)
