# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/pull/186561"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises IndexError('select() cannot be applied to a 0-dim tensor.')"
# keys.aot_function = "(exception, forward, IndexError: select() cannot be applied to a N-dim tensor)"
# keys.aot_eager = "(exception, forward, IndexError: select() cannot be applied to a N-dim tensor)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    v1 = v0[0]
    v0.squeeze_()
    return v1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
