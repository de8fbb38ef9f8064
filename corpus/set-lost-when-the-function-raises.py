# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "shape of a0 after forward of call 1: eager (1,), compiled ()"
# keys.aot_function = "(shape, input, both raise)"
# keys.aot_eager = "(shape, input, both raise)"
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
    v0 = x0.zero_()
    v0.set_(x0)
    x0.zero_()
    x0.unsqueeze_(0)
    x0.as_strided((2,), (1,))
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
