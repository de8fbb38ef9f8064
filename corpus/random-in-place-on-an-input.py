# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/151432"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises SyntaxError('invalid syntax (proxy_tensor.py:1738 in wrapped, line 5)')"
# keys.aot_function = "(exception, forward, SyntaxError: invalid syntax (proxy_tensor.py:N in wrapped, line N))"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    x0.random_(0, 3)
    return x0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
