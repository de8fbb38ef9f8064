# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('A view was created in inference mode and is being modified inplace in normal mode. Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the '), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: A view was created in inference mode and is being modified inplace in normal mode)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    with torch.inference_mode():
        a1 = a0.unsqueeze(0)
    return (a1,), named(locals())

def f(x0):
    x0.mul_(2)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
