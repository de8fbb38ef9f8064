# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/114975"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Metadata mutations are currently not allowed on tensor subclasses')"
# keys.aot_function = "(exception, forward, RuntimeError: Metadata mutations are currently not allowed on tensor subclasses)"
# keys.aot_eager = "(exception, forward, RuntimeError: Expected cond to be True, but got False)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = wrapped.differentiable(a0)
    a2 = a1.view((1,))
    return (a2,), named(locals())

def f(x0):
    x0.squeeze_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
