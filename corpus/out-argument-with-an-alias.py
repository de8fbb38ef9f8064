# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "shape of output after forward of call 1: eager (), compiled (1,)"
# note = "an alias of an `out=` argument that is resized has the wrong shape"
# keys.aot_function = "(shape, output)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.sum()
    v1 = v0.detach()
    torch.add(x0, x0, out=v0)
    return v1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
