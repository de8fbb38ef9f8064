# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('A view was created in inference mode and its base or another view of its base has been modified inplace in normal mode. Given that this use case is ambiguous and error-prone, it is forbidden. You can ')"
# keys.aot_eager = "(exception, forward, RuntimeError: A view was created in inference mode and its base or another view of its base has been modified inplace in normal mode)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1), (1, 1), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.mH
    v0.t_()
    return None
CALLS = [{"inputs": make_inputs_0, "grad_mode": "inference"}]
main(__file__)
