# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 62 --examples 2000, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError(\u0022view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead.\u0022), compiled raises ValueError('Cannot view a tensor with shape torch.Size([2, 2]) and strides (0, 1) as a tensor with shape (4,)!')"
# keys.aot_function = "(exception, forward, ValueError: Cannot view a tensor with shape torch.Size([N]) and strides [N] as a tensor with shape [N]!)"
# keys.aot_eager = "(exception, forward, ValueError: Cannot view a tensor with shape torch.Size([N]) and strides [N] as a tensor with shape [N]!)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 2), (0, 1), 0)
    return (a0,), named(locals())

def f(x0):
    x0.view((-1,))
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
