# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('a leaf Variable that requires grad is being used in an in-place operation.')"
# keys.aot_eager = "(exception, forward, RuntimeError: a leaf Variable that requires grad is being used in an in-place operation)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    with torch.enable_grad():
        x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0, "grad_mode": "inference"}]
main(__file__)
