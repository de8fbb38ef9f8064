# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/195665"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('setStorage: sizes [99], strides [5], storage offset 0, and itemsize 4 requiring a storage size of 1964 are out of bounds for storage of size 4'), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: setStorage: sizes [N], strides [N], storage offset N, and itemsize N requiring a storage size of N are out of bounds ...)"
# keys.aot_eager = "(exception, forward, missing RuntimeError: setStorage: sizes [N], strides [N], storage offset N, and itemsize N requiring a storage size of N are out of bounds ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    x0.as_strided((99,), (5,))
    return x0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
