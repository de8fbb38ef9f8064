# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('as_strided_scatter: sizes [2], strides [1], storage offset 0  and itemsize 4 requiring a storage size of 8 are out of bounds for storage of size 4')"
# keys.aot_function = "(exception, forward, RuntimeError: as_strided_scatter: sizes [N], strides [N], storage offset N and itemsize N requiring a storage size of N are out of ...)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0[0]
    v0.resize_((2,))
    v0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
