# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after grad of call 1: eager raises RuntimeError('setStorage: sizes [2, 1], strides [1, 2], storage offset 2, and itemsize 4 requiring a storage size of 16 are out of bounds for storage of size 8'), compiled raises nothing"
# keys.aot_function = "(exception, grad, missing RuntimeError: setStorage: sizes [N], strides [N], storage offset N, and itemsize N requiring a storage size of N are out of bounds ...)"
# keys.aot_eager = "(exception, grad, missing RuntimeError: setStorage: sizes [N], strides [N], storage offset N, and itemsize N requiring a storage size of N are out of bounds ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (2,), (1,), 0, requires_grad=True)
    a1 = torch.unsafe_split(a0, 1)
    a2 = a1[1]
    a3 = torch.view_as_real(a2)
    return (a3,), named(locals())

def f(x0):
    v0 = x0.t()
    v0.zero_()
    return x0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
