# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/198095"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Tensor must have a last dimension of size 2')"
# keys.aot_function = "(exception, forward, RuntimeError: Tensor must have a last dimension of size N)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([1, -2, 0, 2], torch.float32, device)
    a0 = strided(s1, torch.float32, (4,), (1,), 0)
    a1 = strided(s1, torch.float32, (2, 2), (2, 1), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x1.mul_(2)
    v9 = torch.view_as_complex(x1)
    return v9
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
