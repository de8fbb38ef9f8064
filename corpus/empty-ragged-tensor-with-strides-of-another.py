# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('self.shape_env must not be None')"
# keys.aot_function = "(exception, forward, AssertionError: self.shape_env must not be None)"
# keys.aot_eager = "(exception, forward, AssertionError: Expected return value from <class 'X'>__tensor_unflatten__() to have stride equal to [N], but got: [N])"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 0, 1), (1, 1, 1), 0)
    a1 = wrapped.jagged(a0)
    a0.requires_grad_()
    a2 = torch.mul(a1, 0)
    return (a2,), named(locals())

def f(x0):
    v0 = x0.clone()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
