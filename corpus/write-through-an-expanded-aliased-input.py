# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/198095"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('The expanded size of the tensor (1) must match the existing size (2) at non-singleton dimension 2.  Target sizes: [2, 2, 1].  Tensor sizes: [2]')"
# keys.aot_function = "(exception, forward, RuntimeError: The expanded size of the tensor [N] must match the existing size [N] at non-singleton dimension N)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([1, 2], torch.float32, device)
    a1 = strided(s1, torch.float32, (), (), 0)
    a3 = strided(s1, torch.float32, (2, 1), (1, 1), 0)
    return (a1, a3), named(locals())

def f(x1, x2):
    v0 = x2.expand((2, 2, 1))
    v1 = v0[0]
    v1.zero_()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
