# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "values of a0 after forward of call 1: eager 2.0 at [0] (1 of 1 elements differ), compiled 1.0"
# keys.aot_function = "(values, input, both raise)"
# keys.aot_eager = "(values, input, both raise)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    x0.add_(1)
    torch.ops.aten.slice_scatter.default(x0, 1, 0)
    return x0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
