# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('expand: attempting to expand a dimension of length 2 -> 1!')"
# keys.aot_function = "(exception, forward, RuntimeError: expand: attempting to expand a dimension of length N -> N!)"
# keys.aot_eager = "(exception, forward, RuntimeError: cannot mutate tensors with frozen storage)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0[:1]
    x0.data = v0
    v0.copy_(x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
