# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('one of the variables needed for gradient computation has been modified by an inplace operation: [CPUBFloat16Type [1, 2]] is at version 1; expected version 0 instead. Hint: the backtrace further above ')"
# keys.aot_function = "(exception, forward, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# keys.aot_eager = "(exception, forward, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.bfloat16, device)
    a0 = strided(s0, torch.bfloat16, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.view((1,))
    v3 = torch.ones((2, 1), dtype=torch.bfloat16)
    v4 = torch.nn.functional.linear(v0, v3)
    v3[0, -1] = 1
    return v4
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
