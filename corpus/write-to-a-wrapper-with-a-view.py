# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/119755"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('        Encountered aliased inputs that are mutated in the graph, but at least one input/output')"
# keys.aot_function = "(exception, forward, RuntimeError: Encountered aliased inputs that are mutated in the graph, but at least one input/output)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = wrapped.tagged(a0)
    a2 = a1.t()
    return (a1, a2), named(locals())

def f(x0, x1):
    x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
