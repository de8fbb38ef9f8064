# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/114415"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('self.shape_env must not be None')"
# keys.aot_function = "(exception, forward, AssertionError: self.shape_env must not be None)"
# keys.aot_eager = "(exception, forward, AssertionError: n=V, n.args[N]=V, placeholders={V}, graph=graph():)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 1], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    a1 = wrapped.jagged(a0)
    return (a1, a0), named(locals())

def f(x0, x1):
    x1.zero_()
    x0.fill_(2)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
