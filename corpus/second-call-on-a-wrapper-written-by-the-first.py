# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/pull/118670"
# difference = "exception of call after grad of call 2: eager raises nothing, compiled raises RuntimeError('')"
# keys.aot_function = "(exception, grad, later call, RuntimeError: During the backward, we encountered a tensor subclass where we guessed its)"
# keys.aot_eager = "(exception, grad, later call, RuntimeError: During the backward, we encountered a tensor subclass where we guessed its)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = wrapped.tagged(a0)
    a1.requires_grad_()
    a2 = a1.clone()
    return (a2,), named(locals())

def f(x0):
    x0.zero_()
    return x0
CALLS = [{"inputs": make_inputs_0}, {"inputs": None, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
