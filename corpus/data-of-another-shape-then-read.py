# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 62 --examples 2000, reduced"
# issue = "none found"
# difference = "shape of output after forward of call 1: eager (1,), compiled ()"
# note = "`x.data = y` of another shape, then a sum: the result has the wrong shape"
# keys.aot_function = "(shape, output)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (1, 1), (1, 1), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = x0.clone()
    v0.data = x1
    v1 = v0.sum(0)
    return v1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
