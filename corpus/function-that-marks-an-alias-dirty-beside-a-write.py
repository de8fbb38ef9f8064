# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than one Tensor. This is not supported by the current autograd engine. You should either m')"
# keys.aot_function = "(exception, forward, RuntimeError: If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than one ...)"
# keys.aot_eager = "(exception, forward, RuntimeError: If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than one ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    a2 = strided(s0, torch.float32, (), (), 0)
    return (a0, a2, a1), named(locals())

def f(x0, x1, x2):
    x0.zero_()
    MarksDirtyAndMore.apply(x1, x2)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
