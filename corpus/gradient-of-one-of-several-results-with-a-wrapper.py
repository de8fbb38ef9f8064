# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 20262503 --strategy strategies:mixed"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor []], which is output 0 of Relu, is at version 2; expected version 1 instead. Hint: th')"
# keys.aot_function = "(exception, forward, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# keys.aot_eager = "(exception, forward, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
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
    a2 = a1.clone()
    return (a2, a0), named(locals())

def f(x0, x1):
    x0.relu_()
    x0.copy_(x1)
    return x0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad", "inputs": (0,)},)}]
main(__file__)
