# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError(\u0022view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead.\u0022), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous ...)"
# keys.aot_eager = "(exception, forward, missing RuntimeError: view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 3, 2), (6, 2, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v4 = x0[:, 2:3]
    v4.view((-1,))
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
