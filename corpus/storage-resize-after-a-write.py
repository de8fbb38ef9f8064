# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Attempted to call resize_() on an invalid python storage.')"
# keys.aot_function = "(exception, forward, RuntimeError: Attempted to call resize_() on an invalid python storage)"
# keys.aot_eager = "(storage-size, input)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3, 4], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v3 = x0[1:]
    torch._foreach_neg_([v3, x0])
    v3.untyped_storage().resize_(4)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
