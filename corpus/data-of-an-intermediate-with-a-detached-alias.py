# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "aliasing of output[1] after forward of call 1: eager shares storage with nothing before it, compiled shares storage with output[0]"
# keys.aot_function = "(aliasing, none vs output-output)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.neg(x0)
    v1 = torch.neg(x0)
    v2 = v0.detach()
    v0.data = v1
    v2.add_(1)
    return [v0, v2]
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
