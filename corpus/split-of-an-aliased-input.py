# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/198095"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError(\u0022split_with_sizes expects split_sizes to sum exactly to 4 (input tensor's size at dimension 0), but got split_sizes=[2, 1]\u0022)"
# keys.aot_function = "(exception, forward, RuntimeError: split_with_sizes expects split_sizes to sum exactly to N (input tensor's size at dimension N), but got split_sizes=[N])"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (3,), (1,), 0)
    a1 = strided(s0, torch.float32, (2, 2), (2, 1), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0, v1 = torch.split(x0, [2, 1])
    x0.zero_()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
