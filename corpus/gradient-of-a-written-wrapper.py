# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/172556"
# difference = "exception of call after grad of call 1: eager raises nothing, compiled raises RuntimeError('')"
# keys.aot_function = "(exception, grad, RuntimeError: During the backward, we encountered a tensor subclass where we guessed its)"
# keys.aot_eager = "(exception, grad, RuntimeError: During the backward, we encountered a tensor subclass where we guessed its)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = wrapped.two(a0, a0)
    a1.requires_grad_()
    a2 = a1.clone()
    return (a2,), named(locals())

def f(x0):
    x0.zero_()
    return x0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
