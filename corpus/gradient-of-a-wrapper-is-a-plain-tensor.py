# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "type of a1.grad after backward of call 1: eager TwoTensor, compiled Tensor"
# keys.aot_function = "(type, gradient after backward)"
# keys.aot_eager = "(type, gradient after backward)"
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
    a2 = a1.view((1,))
    return (a2,), named(locals())

def f(x0):
    v0 = x0.narrow(0, 0, 0)
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
