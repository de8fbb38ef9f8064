# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/151432"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises SyntaxError('invalid syntax (proxy_tensor.py:1738 in wrapped, line 5)')"
# keys.aot_function = "(exception, forward, SyntaxError: invalid syntax (proxy_tensor.py:N in wrapped, line N))"
# keys.aot_eager = "(exception, forward, SyntaxError: invalid syntax (<eval_with_key>.N, line N))"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = wrapped.tagged(a0)
    return (a1,), named(locals())

def f(x0):
    x0.random_(0, 1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
