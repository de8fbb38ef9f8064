# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('only Tensors of floating point dtype can require gradients')"
# keys.aot_function = "(exception, forward, RuntimeError: only Tensors of floating point dtype can require gradients)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.int64, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.int64, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a0, a1), named(locals())

def f(x0, x1, x2):
    v0 = x2.clone()
    x0.zero_()
    v1 = v0.t()
    return (v1, x0, v0)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
