# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "identity of output[0] after forward of call 1: eager is the same object as a2, compiled is the same object as nothing before it"
# keys.aot_function = "(identity, output-input vs none)"
# keys.aot_eager = "(exception, forward, AssertionError: False != True)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (), (), 0)
    a2 = a1.t()
    return (a0, a1, (a2, a1)), named(locals())

def f(x0, x1, x2):
    x1.copy_(x0)
    return x2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
