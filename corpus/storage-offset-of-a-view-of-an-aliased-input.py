# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/198095"
# difference = "storage-offset of output after forward of call 1: eager 2, compiled 1"
# keys.aot_function = "(storage-offset, output)"
# keys.aot_eager = "(storage-offset, output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3, 4], torch.float32, device)
    a0 = strided(s0, torch.float32, (4,), (1,), 0)
    a2 = a0[::2]
    return (a0, a2), named(locals())

def f(x0, x1):
    x0.mul_(-1)
    v0 = x1.narrow(0, 1, 1)
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
