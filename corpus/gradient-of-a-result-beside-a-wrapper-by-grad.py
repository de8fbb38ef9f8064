# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/131794"
# difference = "exception of call after grad of call 1: eager raises nothing, compiled raises AttributeError(\u0022'Tensor' object has no attribute 'a'\u0022)"
# keys.aot_function = "(exception, grad, AttributeError: 'X' object has no attribute 'X')"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = wrapped.differentiable(a0)
    return (a1, a0), named(locals())

def f(x0, x1):
    v0 = x1.clone()
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
