# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 32 --examples 1500, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('setStorage: sizes [1], strides [0], storage offset 1, and itemsize 4 requiring a storage size of 8 are out of bounds for storage of size 4')"
# keys.aot_function = "(exception, forward, RuntimeError: Attempted to call resize_() on an invalid python storage)"
# keys.aot_eager = "(exception, forward, RuntimeError: setStorage: sizes [N], strides [N], storage offset N, and itemsize N requiring a storage size of N are out of bounds ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    x0.untyped_storage().resize_(8)
    v0 = x0.detach()
    v0.as_strided_((1,), (0,), 1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
