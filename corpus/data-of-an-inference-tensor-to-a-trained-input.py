# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.')"
# keys.aot_function = "(exception, forward, RuntimeError: Setting requires_grad=True on inference tensor outside InferenceMode is not allowed)"
# keys.aot_eager = "(requires-grad, output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    with torch.inference_mode():
        a1 = a0.clone()
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.data = x1
    v0 = x0.t()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
