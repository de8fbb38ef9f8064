# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError(\u0022view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead.\u0022)"
# keys.aot_function = "(exception, forward, RuntimeError: view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous ...)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s0, torch.float32, (2, 1, 1, 2), (2, 2, 2, 1), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = x0.clone()
    v1 = x1.view((-1,))
    x1.transpose_(0, 3)
    return (v1, v0)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
