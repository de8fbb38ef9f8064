# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('isDifferentiableType(grad.scalar_type()) INTERNAL ASSERT FAILED at \u0022/__w/pytorch/pytorch/torch/csrc/autograd/engine.cpp\u0022:998, please report a bug to PyTorch. ')"
# keys.aot_function = "(exception, forward, RuntimeError: isDifferentiableType(grad.scalar_type()) INTERNAL ASSERT FAILED at 'X':N, please report a bug to PyTorch)"
# keys.aot_eager = "(exception, forward, RuntimeError: isDifferentiableType(grad.scalar_type()) INTERNAL ASSERT FAILED at 'X':N, please report a bug to PyTorch)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    s1 = storage([1], torch.bool, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.bool, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x1.gt_(x0)
    return x0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
