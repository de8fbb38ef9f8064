# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('new_fn INTERNAL ASSERT FAILED at \u0022/__w/pytorch/pytorch/torch/csrc/autograd/variable.cpp\u0022:198, please report a bug to PyTorch. ')"
# keys.aot_eager = "(exception, forward, RuntimeError: new_fn INTERNAL ASSERT FAILED at 'X':N, please report a bug to PyTorch)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = a0.t()
    a1.requires_grad_()
    return (a1,), named(locals())

def f(x0):
    v0 = x0.t()
    WritesUnmarked.apply(x0)
    v0.clone()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
