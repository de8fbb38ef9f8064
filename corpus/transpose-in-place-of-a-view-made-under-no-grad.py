# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('A view was created in no_grad mode and is being modified inplace with grad mode enabled. Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving bot')"
# keys.aot_function = "(exception, forward, RuntimeError: A view was created in no_grad mode and is being modified inplace with grad mode enabled)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (0,), (1,), 0, requires_grad=True)
    with torch.no_grad():
        a1 = a0.unsqueeze(0)
    return (a1,), named(locals())

def f(x0):
    with torch.no_grad():
        x0.t_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
