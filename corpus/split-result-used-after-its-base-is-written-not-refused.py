# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('Output 1 of Split is a view and its base or another view of its base has been modified inplace. This view is the output of a function that returns multiple views. Such functions do not allow the outpu'), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: Output N of X is a view and its base or another view of its base has been modified inplace)"
# keys.aot_eager = "(exception, forward, missing RuntimeError: Output N of X is a view and its base or another view of its base has been modified inplace)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = torch.mul(a0, 2)
    return (a1,), named(locals())

def f(x0):
    v0, v1 = torch.split(x0, 1, 0)
    torch._foreach_neg_([x0])
    v2 = v1.clone()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
