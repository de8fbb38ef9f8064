# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Input tensor must have one or more dimensions')"
# keys.aot_function = "(exception, forward, RuntimeError: Input tensor must have one or more dimensions)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    v1 = v0[0]
    torch.add(x0, x0, out=v1)
    torch.view_as_complex(v1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
