# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/195665"
# difference = "exception of call after forward of call 2: eager raises RuntimeError('setStorage: sizes [1], strides [0], storage offset 1, and itemsize 4 requiring a storage size of 8 are out of bounds for storage of size 4'), compiled raises nothing"
# keys.aot_eager = "(exception, forward, later call, missing RuntimeError: setStorage: sizes [N], strides [N], storage offset N, and itemsize N requiring a storage size of N are out of bounds ...)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([0, 0], torch.float32, device)
    a1 = strided(s1, torch.float32, (2,), (1,), 0)
    return (a1,), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    x0.as_strided((1,), (0,), 1)
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
