# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please clone() the tensor before performing the operation.')"
# keys.aot_function = "(exception, forward, RuntimeError: more than one element of the written-to tensor refers to a single memory location)"
# keys.aot_eager = "(exception, forward, RuntimeError: more than one element of the written-to tensor refers to a single memory location)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a2 = a0.expand((2, 1))
    return (a2,), named(locals())

def f(x1):
    x1[0, 0] = 1
    return x1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
