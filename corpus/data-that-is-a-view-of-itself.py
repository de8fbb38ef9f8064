# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/91093"
# difference = "shape of a0 after forward of call 1: eager (1,), compiled ()"
# keys.aot_function = "(shape, input)"
# keys.aot_eager = "(shape, input)"
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
    v0 = x0.view((1,))
    x0.data = v0
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
