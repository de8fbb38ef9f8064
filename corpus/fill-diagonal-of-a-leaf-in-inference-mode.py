# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/90992"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('!self.requires_grad() || self.is_contiguous() INTERNAL ASSERT FAILED at \u0022/__w/pytorch/pytorch/aten/src/ATen/native/TensorShape.cpp\u0022:4754, please report a bug to PyTorch. as_strided_scatter is currentl')"
# keys.aot_function = "(exception, forward, RuntimeError: !self.requires_grad() || self.is_contiguous() INTERNAL ASSERT FAILED at 'X':N, please report a bug to PyTorch)"
# keys.aot_eager = "(exception, forward, RuntimeError: !self.requires_grad() || self.is_contiguous() INTERNAL ASSERT FAILED at 'X':N, please report a bug to PyTorch)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 2), (1, 2), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    with torch.inference_mode():
        x0.fill_diagonal_(0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
