# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/186355"
# difference = "gradient-none of a4.grad after backward of call 1: eager None, compiled torch.float32 of shape ()"
# keys.aot_function = "(gradient-none, gradient after backward)"
# keys.aot_eager = "(exception, backward, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    s2 = storage([1], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a4 = strided(s2, torch.float32, (), (), 0, requires_grad=True)
    a5 = a4.clone()
    return (a0, a5), named(locals())

def f(x0, x2):
    x2.square_()
    v7 = torch.sin(x0)
    return v7
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
