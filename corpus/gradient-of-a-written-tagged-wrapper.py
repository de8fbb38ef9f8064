# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/172556"
# difference = "exception of call after backward of call 1: eager raises nothing, compiled raises RuntimeError('')"
# keys.aot_function = "(exception, backward, RuntimeError: During the backward, we encountered a tensor subclass where we guessed its)"
# keys.aot_eager = "(exception, backward, RuntimeError: During the backward, we encountered a tensor subclass where we guessed its)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = wrapped.tagged(a0)
    a1.requires_grad_()
    a2 = torch.mul(a1, 2)
    a3 = torch.mul(a0, 1)
    return (a2, a3), named(locals())

def f(x0, x1):
    x0.neg_()
    x1.neg_()
    return (x1, x0)
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (1,)},)}]
main(__file__)
