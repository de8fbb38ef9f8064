# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/198095"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises AssertionError('incorrect out shape after application of ViewMeta sequence: (1,) (actual) vs () (expected)')"
# keys.aot_eager = "(exception, forward, later call, AssertionError: incorrect out shape after application of ViewMeta sequence: [N] (actual) vs [N] (expected))"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0, a0), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s0, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x1.zero_()
    v0 = x0.detach()
    return v0
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
