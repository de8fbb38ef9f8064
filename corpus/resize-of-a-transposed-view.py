# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 62 --examples 2000, reduced"
# issue = "none found"
# difference = "stride of output after forward of call 1: eager (1, 2), compiled (2, 1)"
# note = "eager makes a view that is resized to its own size contiguous; the backend keeps its strides"
# keys.aot_function = "(stride, output)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 2), (2, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.t()
    v0.resize_((2, 2))
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
