# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('t_() expects a tensor with <= 2 dimensions, but self is 3D'), compiled raises AssertionError('t_ expects a tensor with <= 2 dimensions, but self is 3D')"
# keys.aot_eager = "(exception, forward, AssertionError: t_ expects a tensor with <= N dimensions, but self is ND)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (3, 0, 1), (1, 1, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.zero_()
    v0.t_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
