# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/90992"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises RuntimeError('!self.requires_grad() || self.is_contiguous() INTERNAL ASSERT FAILED at \u0022/__w/pytorch/pytorch/aten/src/ATen/native/TensorShape.cpp\u0022:4754, please report a bug to PyTorch. as_strided_scatter is currentl')"
# keys.aot_eager = "(exception, forward, later call, RuntimeError: !self.requires_grad() || self.is_contiguous() INTERNAL ASSERT FAILED at 'X':N, please report a bug to PyTorch)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1), (1, 1), 0)
    return (a0,), named(locals())
def make_inputs_1(device):
    s0 = storage([0, 0], torch.int64, device)
    a0 = strided(s0, torch.float32, (1, 2), (4, 2), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    x0.fill_diagonal_(0)
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1, "grad_mode": "no_grad"}]
main(__file__)
