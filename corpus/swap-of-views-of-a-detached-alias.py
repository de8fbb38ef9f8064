# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('It is not possible to get the gradient edge for a Tensor that does not require gradients')"
# keys.aot_function = "(exception, forward, RuntimeError: It is not possible to get the gradient edge for a Tensor that does not require gradients)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = a0.detach()
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = x1.view((2,))
    v1 = v0.unsqueeze(0)
    torch.utils.swap_tensors(v0, v1)
    v1.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
