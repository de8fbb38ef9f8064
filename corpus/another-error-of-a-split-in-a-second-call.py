# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 2: eager raises RuntimeError(\u0022split_with_sizes expects split_sizes to sum exactly to 1 (input tensor's size at dimension 0), but got split_sizes=[1, 1]\u0022), compiled raises ValueError(\u0022Split sizes add up to 2 but got the tensor's size of 1\u0022)"
# keys.aot_eager = "(exception, forward, later call, ValueError: Split sizes add up to N but got the tensor's size of N)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    torch.split(x0, [1, 1])
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
