# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/114415"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('n=copy__1, n.args[0]=copy_, placeholders={arg2_1, arg0_1, arg1_1, arg3_1, arg4_1, arg5_1}, graph=graph():')"
# keys.aot_eager = "(exception, forward, AssertionError: n=V, n.args[N]=V, placeholders={V}, graph=graph():)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    s2 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0)
    a2 = strided(s2, torch.float32, (), (), 0)
    a3 = wrapped.two(a0, a0)
    a4 = a3.clone()
    return (a3, a4, a1, a2), named(locals())

def f(x0, x1, x2, x3):
    x1.clone()
    x3.clone()
    x0.zero_()
    x2.clone()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
