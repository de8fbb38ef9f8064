# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/112024"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('Cannot set version_counter for inference tensor'), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: Cannot set version_counter for inference tensor)"
# keys.aot_eager = "(exception, forward, missing RuntimeError: Cannot set version_counter for inference tensor)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = wrapped.tagged(a0)
    return (a1,), named(locals())

def f(x0):
    x0.detach()
    return None
CALLS = [{"inputs": make_inputs_0, "grad_mode": "inference"}]
main(__file__)
