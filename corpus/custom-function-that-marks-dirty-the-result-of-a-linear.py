# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than one Tensor. This is not supported by the current autograd engine. You should either m')"
# keys.aot_function = "(exception, forward, RuntimeError: If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than one ...)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    s1 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (1, 2), (2, 1), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v5 = torch.nn.functional.linear(x0, x1)
    MarksDirtyAndMore.apply(v5, v5)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
