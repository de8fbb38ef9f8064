# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('A view was created in no_grad mode and is being modified inplace with grad mode enabled. Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving bot')"
# keys.aot_eager = "(exception, forward, RuntimeError: A view was created in no_grad mode and is being modified inplace with grad mode enabled)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s1, torch.float32, (1,), (1,), 0)
    a1 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = x0.clone()
    v1 = v0[0]
    torch.add(x0, x0, out=v1)
    v1.copy_(x1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
