# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 2: eager raises RuntimeError(\u0022view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead.\u0022), compiled raises ValueError('Cannot view a tensor with shape torch.Size([2, 3]) and strides (1, 2) as a tensor with shape (6,)!')"
# keys.aot_eager = "(exception, forward, later call, ValueError: Cannot view a tensor with shape torch.Size([N]) and strides [N] as a tensor with shape [N]!)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 3), (3, 1), 0)
    return (a0,), named(locals())
def make_inputs_1(device):
    s0 = storage([0, 0, 0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 3), (1, 2), 0)
    return (a0,), named(locals())

def f(x0):
    x0.view((6,))
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
