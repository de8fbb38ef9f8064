# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/91093"
# difference = "storage-offset of a0 after forward of call 1: eager 0, compiled 1"
# keys.aot_function = "(storage-offset, input)"
# keys.aot_eager = "(storage-offset, input)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 1)
    a1 = strided(s0, torch.float32, (), (), 0)
    return (a1, a0), named(locals())

def f(x0, x1):
    x1.data = x0
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
