# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "aliasing of a1 after forward of call 1: eager shares storage with a0, compiled shares storage with nothing before it"
# keys.aot_function = "(aliasing, input-input vs none)"
# keys.aot_eager = "(aliasing, none vs output-input)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = x0.detach()
    x0.data = x1
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
