# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises RuntimeError('setStorage: sizes [], strides [], storage offset 3, and itemsize 4 requiring a storage size of 16 are out of bounds for storage of size 4')"
# keys.aot_eager = "(exception, forward, later call, RuntimeError: setStorage: sizes [N], strides [N], storage offset N, and itemsize N requiring a storage size of N are out of bounds ...)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (4,), (1,), 0)
    a1 = strided(s0, torch.float32, (), (), 3)
    return (a0, a1), named(locals())
def make_inputs_1(device):
    s0 = storage([0, 0, 0, 0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (4,), (1,), 0)
    a1 = strided(s1, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x1.zero_()
    x0.clone()
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
