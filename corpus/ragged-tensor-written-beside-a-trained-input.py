# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('self.shape_env must not be None')"
# keys.aot_function = "(exception, forward, AssertionError: self.shape_env must not be None)"
# keys.aot_eager = "(exception, forward, AssertionError: offsets must be ND, but got ND)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1), (1, 1), 0)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    a2 = wrapped.jagged(a0)
    a3 = a1.clone()
    return (a3, a2), named(locals())

def f(x0, x1):
    x0.zero_()
    x1.zero_()
    return x1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
