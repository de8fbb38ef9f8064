# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/198095"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('incorrect out shape after application of ViewMeta sequence: (1,) (actual) vs () (expected)')"
# keys.aot_function = "(exception, forward, AssertionError: incorrect out shape after application of ViewMeta sequence: [N] (actual) vs [N] (expected))"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s0, torch.float32, (), (), 0)
    return (a1, a0), named(locals())

def f(x0, x1):
    x0.zero_()
    v0 = x0.detach()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
