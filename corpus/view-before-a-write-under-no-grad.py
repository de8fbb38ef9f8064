# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('A view was created in no_grad mode and its base or another view of its base has been modified inplace with grad mode enabled. Given that this use case is ambiguous and error-prone, it is forbidden. Yo')"
# keys.aot_function = "(exception, forward, RuntimeError: A view was created in no_grad mode and its base or another view of its base has been modified inplace with grad mode ...)"
# keys.aot_eager = "(exception, forward, RuntimeError: A view was created in no_grad mode and its base or another view of its base has been modified inplace with grad mode ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.t()
    x0.zero_()
    return v0
CALLS = [{"inputs": make_inputs_0, "grad_mode": "no_grad"}]
main(__file__)
