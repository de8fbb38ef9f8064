# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Output 1 of Unbind is a view and its base or another view of its base has been modified inplace. This view is the output of a function that returns multiple views. Such functions do not allow the outp')"
# keys.aot_function = "(exception, forward, RuntimeError: Output N of X is a view and its base or another view of its base has been modified inplace)"
# keys.aot_eager = "(exception, forward, RuntimeError: Output N of X is a view and its base or another view of its base has been modified inplace)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3, 4], torch.float32, device)
    a0 = strided(s0, torch.float32, (4,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.neg(x0)
    v1, v2, v3, v4 = torch.unbind(v0, 0)
    v0.fill_(3)
    return v2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
