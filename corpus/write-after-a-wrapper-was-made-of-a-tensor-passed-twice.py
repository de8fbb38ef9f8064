# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('        Encountered duplicate inputs that are mutated in the graph, but at least one input/output')"
# keys.aot_function = "(exception, forward, RuntimeError: Encountered duplicate inputs that are mutated in the graph, but at least one input/output)"
# keys.aot_eager = "(identity, output-input vs none)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0, a0), named(locals())

def f(x0, x1):
    v0 = wrapped.two(x0, x0)
    x0.zero_()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
