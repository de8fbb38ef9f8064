# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Autograd not support dtype: Long')"
# keys.aot_function = "(exception, forward, RuntimeError: Autograd not support dtype: T)"
# keys.aot_eager = "(exception, forward, RuntimeError: isDifferentiableType(grad.scalar_type()) INTERNAL ASSERT FAILED at 'X':N, please report a bug to PyTorch)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.int64, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.int64, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    a2 = a0.t()
    return (a0, a2, a1), named(locals())

def f(x0, x1, x2):
    x0.gt_(x2)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
