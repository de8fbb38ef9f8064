# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after grad of call 1: eager raises RuntimeError('setStorage: sizes [], strides [], storage offset 3, and itemsize 4 requiring a storage size of 16 are out of bounds for storage of size 8'), compiled raises nothing"
# keys.aot_function = "(exception, grad, missing RuntimeError: setStorage: sizes [N], strides [N], storage offset N, and itemsize N requiring a storage size of N are out of bounds ...)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0], torch.complex64, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.complex64, (), (), 1)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.imag = x1
    return x0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
