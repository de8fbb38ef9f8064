# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "exception of call after backward of call 2: eager raises RuntimeError('one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor [0]], which is output 0 of Tanh, is at version 2; expected version 1 instead. Hint: e'), compiled raises nothing"
# keys.aot_function = "(exception, backward, later call, missing RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# keys.aot_eager = "(exception, backward, later call, missing RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (0,), (1,), 0, requires_grad=True)
    a1 = a0.clone()
    a2 = a1.view((0,))
    return (a1, a2), named(locals())
def make_inputs_1(device):
    s0 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (0,), (1,), 0, requires_grad=True)
    a1 = a0.clone()
    a2 = a1.view((0,))
    return (a1, a2), named(locals())

def f(x0, x1):
    v0 = x0.tanh_()
    x1.neg_()
    return v0
CALLS = [
    {"inputs": make_inputs_0},
    {"inputs": make_inputs_1, "steps": ({"do": "backward", "roots": (0,), "calls_ago": 1},)},
]
main(__file__)
