# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after probe of call 1: eager raises nothing, compiled raises RuntimeError('A view was created in no_grad mode and is being modified inplace with grad mode enabled. Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving bot')"
# keys.aot_function = "(exception, probe, RuntimeError: A view was created in no_grad mode and is being modified inplace with grad mode enabled)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    with torch.no_grad():
        a1 = a0.t()
    return (a0, [a1]), named(locals())

def f(x0, x1):
    v0 = x0.clone()
    x1[0] = v0
    return None
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "probe", "site": "input", "index": 1, "seed": 1, "how": "grad"},)}]
main(__file__)
