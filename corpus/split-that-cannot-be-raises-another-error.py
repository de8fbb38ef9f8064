# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError(\u0022split_with_sizes expects split_sizes to sum exactly to 3 (input tensor's size at dimension 0), but got split_sizes=[2, 0]\u0022), compiled raises ValueError(\u0022Split sizes add up to 2 but got the tensor's size of 3\u0022)"
# keys.aot_function = "(exception, forward, ValueError: Split sizes add up to N but got the tensor's size of N)"
# keys.aot_eager = "(exception, forward, ValueError: Split sizes add up to N but got the tensor's size of N)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3], torch.float32, device)
    a0 = strided(s0, torch.float32, (3,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v2, v3 = torch.split(x0, [2, 0], 0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
