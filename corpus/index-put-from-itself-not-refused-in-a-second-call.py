# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 32 --examples 1500, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/139789"
# difference = "exception of call after forward of call 2: eager raises RuntimeError('unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. Please clone() the tensor before performing the operation.'), compiled raises nothing"
# keys.aot_function = "(exception, forward, AssertionError: Found a graph input that had its metadata mutated in the backward)"
# keys.aot_eager = "(exception, forward, later call, missing RuntimeError: some elements of the input tensor and the written-to tensor refer to a single memory location)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, -2, 0], torch.float32, device)
    s1 = storage([1, 2], torch.float32, device)
    s2 = storage([0, 2, -1, 1, -2, 0, 2, -1, 1, -2], torch.complex64, device)
    a0 = strided(s0, torch.float32, (3,), (1,), 0)
    a1 = strided(s1, torch.float32, (2,), (1,), 0, requires_grad=True)
    a3 = strided(s2, torch.complex64, (3,), (1,), 2)
    a2 = a1[0:1]
    return (a0, a0, a1, a2, a3), named(locals())
def make_inputs_1(device):
    s0 = storage([1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0], torch.float32, device)
    s1 = storage([2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1], torch.complex64, device)
    a0 = strided(s0, torch.float32, (3,), (1,), 0)
    a1 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a2 = strided(s0, torch.float32, (1,), (1,), 0)
    a3 = strided(s1, torch.complex64, (3,), (1,), 0)
    return (a0, a0, a1, a2, a3), named(locals())

def f(x0, x1, x2, x3, x4):
    v0 = x2[1:]
    v1 = torch.neg(x2)
    v2 = x4.squeeze_()
    v2[0] = 3
    v5 = torch.tensor([0], device=x0.device)
    v6 = x1.index_put_((v5,), v0, accumulate=True)
    return (v1,)
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
