# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises AssertionError('aot_autograd() does not yet handle non-differentiable view input mutations. input 0 (x1) and input 1 (x0) share storage but are not differentiable views of each other.')"
# keys.aot_eager = "(exception, forward, later call, AssertionError: aot_autograd() does not yet handle non-differentiable view input mutations)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0, a0), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s0, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x1.zero_()
    v0 = SavesTensors.apply(x1, x0)
    return v0
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
