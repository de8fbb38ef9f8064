# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('inconsistent tensor size, expected tensor [1] and src [2] to have thesame number of elements, but got 1 and 2 elements respectively')"
# keys.aot_function = "(exception, forward, RuntimeError: inconsistent tensor size, expected tensor [N] and src [N] to have thesame number of elements, but got N and N elements ...)"
# keys.aot_eager = "(shape, input)"
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
    torch.dot(v0, x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
