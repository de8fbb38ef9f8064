# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('self.shape_env must not be None')"
# keys.aot_function = "(exception, forward, AssertionError: self.shape_env must not be None)"
# keys.aot_eager = "(exception, forward, NotImplementedError: aten.masked_fill_.Scalar)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 2, -1, 1], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 2), (2, 1), 0, requires_grad=True)
    a1 = wrapped.jagged(a0)
    a1.requires_grad_()
    return (a1,), named(locals())

def f(x0):
    v2 = x0.minimum(x0)
    return v2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
