# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/pull/121007"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('self.size(-1) must be divisible by 2 to view Float as Long (different element sizes), but got 1')"
# keys.aot_function = "(exception, forward, RuntimeError: self.size[N] must be divisible by N to view T as T (different element sizes), but got N)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 2), (2, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.view(torch.int64)
    x0.t_()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
