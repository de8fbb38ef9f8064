# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/140171"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('setStorage: sizes [1], strides [0], storage offset 4, and itemsize 4 requiring a storage size of 20 are out of bounds for storage of size 16')"
# keys.aot_function = "(exception, forward, RuntimeError: setStorage: sizes [N], strides [N], storage offset N, and itemsize N requiring a storage size of N are out of bounds ...)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (4,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    x0.as_strided_((1,), (0,), 4)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
