# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.'), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: Setting requires_grad=True on inference tensor outside InferenceMode is not allowed)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    with torch.inference_mode():
        a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    x0.requires_grad_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
