# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('new_fn INTERNAL ASSERT FAILED at \u0022/__w/pytorch/pytorch/torch/csrc/autograd/variable.cpp\u0022:198, please report a bug to PyTorch. ')"
# keys.aot_function = "(exception, forward, RuntimeError: new_fn INTERNAL ASSERT FAILED at 'X':N, please report a bug to PyTorch)"
# keys.aot_eager = "(exception, forward, AssertionError: any_leaf=True != all_leaf=False for outer_indices=[N])"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = torch.mul(a0, 2)
    return (a1,), named(locals())

def f(x0):
    v0 = x0.view((1, 2))
    x0.detach_()
    x0.add_(1)
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
