# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please clone() the tensor before performing the operation.'), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: more than one element of the written-to tensor refers to a single memory location)"
# keys.aot_eager = "(exception, forward, missing RuntimeError: more than one element of the written-to tensor refers to a single memory location)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([1], torch.float32, device)
    a2 = strided(s1, torch.float32, (), (), 0)
    return (a2,), named(locals())

def f(x2):
    v6 = torch.broadcast_to(x2, (2, 2))
    v6.relu_()
    return x2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
