# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/88817"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('aot_autograd() does not yet handle non-differentiable view input mutations. input 0 (args[0]) and input 1 (args[1]) share storage but are not differentiable views of each other.')"
# keys.aot_function = "(exception, forward, AssertionError: aot_autograd() does not yet handle non-differentiable view input mutations)"
# keys.aot_eager = "(exception, forward, AssertionError: aot_autograd() does not yet handle non-differentiable view input mutations)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    a2 = a1.detach()
    return (a1, a2), named(locals())

def f(x0, x1):
    x0.zero_()
    x1.clone()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
