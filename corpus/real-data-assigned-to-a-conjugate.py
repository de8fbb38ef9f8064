# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('isComplexType(typeMetaToScalarType(dtype())) INTERNAL ASSERT FAILED at \u0022/__w/pytorch/pytorch/c10/core/TensorImpl.h\u0022:1470, please report a bug to PyTorch. ')"
# keys.aot_function = "(exception, forward, RuntimeError: isComplexType(typeMetaToScalarType(dtype())) INTERNAL ASSERT FAILED at 'X':N, please report a bug to PyTorch)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.complex64, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.complex64, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = x0.conj()
    v0.data = x1
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
