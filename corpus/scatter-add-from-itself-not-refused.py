# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. Please clone() the tensor before performing the operation.'), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: some elements of the input tensor and the written-to tensor refer to a single memory location)"
# keys.aot_eager = "(exception, forward, missing RuntimeError: some elements of the input tensor and the written-to tensor refer to a single memory location)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3], torch.float32, device)
    a0 = strided(s0, torch.float32, (3, 2, 3, 1), (6, 3, 1, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v3 = torch.tensor([[[[0], [0], [0]], [[0], [0], [0]]], [[[0], [0], [0]], [[0], [0], [0]]], [[[0], [0], [0]], [[0], [0], [0]]]])
    x0.scatter_add_(3, v3, x0)
    return x0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
