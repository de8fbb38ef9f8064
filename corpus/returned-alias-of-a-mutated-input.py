# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "identity of output after forward of call 1: eager is the same object as a1, compiled is the same object as nothing before it"
# keys.aot_function = "(identity, output-input vs none)"
# keys.aot_eager = "(identity, output-input vs none)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.int64, device)
    a0 = strided(s0, torch.int64, (), (), 0)
    a1 = a0.detach()
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.bitwise_and_(1)
    return x1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
