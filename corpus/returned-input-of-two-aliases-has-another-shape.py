# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/198095"
# difference = "shape of output after forward of call 1: eager (4,), compiled (12,)"
# note = "one of two inputs on one storage is written and returned; the result has another shape"
# keys.aot_function = "(shape, output)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (4,), (1,), 0)
    a1 = strided(s0, torch.float32, (2, 2), (1, 1), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.zero_()
    return x0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
