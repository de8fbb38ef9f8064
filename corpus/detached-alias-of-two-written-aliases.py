# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/198095"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('incorrect out shape after application of ViewMeta sequence: (2,) (actual) vs (1,) (expected)')"
# keys.aot_function = "(exception, forward, AssertionError: incorrect out shape after application of ViewMeta sequence: [N] (actual) vs [N] (expected))"
# keys.aot_eager = "(exception, forward, AssertionError: incorrect out shape after application of ViewMeta sequence: [N] (actual) vs [N] (expected))"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([2, -2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    a1 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v1 = x1.detach()
    torch._foreach_sign_([x1, x0, v1])
    return v1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
