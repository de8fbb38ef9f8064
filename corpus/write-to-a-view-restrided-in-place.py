# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/120585"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('as_strided_scatter: sizes [2], strides [1], storage offset 2  and itemsize 4 requiring a storage size of 16 are out of bounds for storage of size 4')"
# keys.aot_function = "(exception, forward, RuntimeError: as_strided_scatter: sizes [N], strides [N], storage offset N and itemsize N requiring a storage size of N are out of ...)"
# keys.aot_eager = "(exception, forward, RuntimeError: as_strided_scatter: sizes [N], strides [N], storage offset N and itemsize N requiring a storage size of N are out of ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3, 4], torch.float32, device)
    a0 = strided(s0, torch.float32, (4,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v1 = x0[0:1]
    v1.as_strided_((2,), (1,), 2)
    v1.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
