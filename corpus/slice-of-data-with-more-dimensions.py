# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('slice() cannot be applied to a 0-dim tensor.')"
# note = "on aot_function an error about the former shape; on aot_eager the argument keeps its shape"
# keys.aot_function = "(exception, forward, RuntimeError: slice() cannot be applied to a N-dim tensor)"
# keys.aot_eager = "(shape, input)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.unsqueeze(0)
    x0.data = v0
    v1 = x0[0:]
    return v1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
