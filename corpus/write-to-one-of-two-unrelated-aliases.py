# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('a leaf Variable that requires grad is being used in an in-place operation.'), compiled raises AssertionError('aot_autograd() does not yet handle non-differentiable view input mutations. input 0 (args[0]) and input 1 (args[1]) share storage but are not differentiable views of each other.')"
# keys.aot_function = "(exception, forward, AssertionError: aot_autograd() does not yet handle non-differentiable view input mutations)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a1), named(locals())

def f(x0, x1):
    x1.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
