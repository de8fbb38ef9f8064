# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/126413"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('cannot mutate tensors with frozen storage')"
# keys.aot_eager = "(exception, forward, RuntimeError: cannot mutate tensors with frozen storage)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    x0.data = x0
    x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
