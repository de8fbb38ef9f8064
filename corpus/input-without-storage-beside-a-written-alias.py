# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('setStorage: sizes [], strides [], storage offset 0, and itemsize 4 requiring a storage size of 4 are out of bounds for storage of size 0')"
# keys.aot_function = "(exception, forward, RuntimeError: setStorage: sizes [N], strides [N], storage offset N, and itemsize N requiring a storage size of N are out of bounds ...)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s0, torch.float32, (), (), 0)
    a2 = strided(s1, torch.float32, (), (), 0)
    a2.untyped_storage().resize_(0)
    return (a0, a1, a2), named(locals())

def f(x0, x1, x2):
    x0.zero_()
    return x2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
