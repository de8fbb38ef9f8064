# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError(\u0022Expected return value from <class 'torch.testing._internal.custom_tensor.ConstantExtraMetadataTensor'>__tensor_unflatten__() to have stride equal to (1, 2), but got: (1, 1)\u0022)"
# keys.aot_function = "(exception, forward, AssertionError: Expected return value from <class 'X'>__tensor_unflatten__() to have stride equal to [N], but got: [N])"
# keys.aot_eager = "(exception, forward, AssertionError: Expected return value from <class 'X'>__tensor_unflatten__() to have stride equal to [N], but got: [N])"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 2), (2, 1), 0)
    a1 = wrapped.constant(a0)
    a2 = a1.t()
    return (a2,), named(locals())

def f(x0):
    x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
