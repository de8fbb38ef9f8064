# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Output 0 of AsStrided is a view and is being modified inplace. This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic to handle view+inplace wou')"
# keys.aot_eager = "(exception, forward, RuntimeError: Output N of X is a view and is being modified inplace)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.sum()
    v1, v2 = torch.autograd.grad([v0], [x0, x0], [v0], create_graph=True)
    v1.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
