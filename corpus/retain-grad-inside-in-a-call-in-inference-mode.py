# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError(\u0022can't retain_grad on Tensor that has requires_grad=False\u0022)"
# keys.aot_function = "(exception, forward, RuntimeError: can't retain_grad on Tensor that has requires_grad=False)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.t()
    v0.retain_grad()
    return None
CALLS = [{"inputs": make_inputs_0, "grad_mode": "inference"}]
main(__file__)
