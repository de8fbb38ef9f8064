# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/140171"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('as_strided_scatter: sizes [2, 2], strides [4, 2], storage offset 0  and itemsize 4 requiring a storage size of 28 are out of bounds for storage of size 4')"
# keys.aot_function = "(exception, forward, RuntimeError: as_strided_scatter: sizes [N], strides [N], storage offset N and itemsize N requiring a storage size of N are out of ...)"
# keys.aot_eager = "(exception, forward, RuntimeError: as_strided_scatter: sizes [N], strides [N], storage offset N and itemsize N requiring a storage size of N are out of ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.as_strided((2, 2), (4, 2))
    v0.eq_(1)
    return x0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
