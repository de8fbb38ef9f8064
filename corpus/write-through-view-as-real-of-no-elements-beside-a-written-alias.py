# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: ComplexFloat')"
# keys.aot_function = "(exception, forward, RuntimeError: view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: T)"
# keys.aot_eager = "(exception, forward, RuntimeError: output with shape [N] doesn't match the broadcast shape [N])"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    s1 = storage([], torch.complex64, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a4 = strided(s1, torch.complex64, (0,), (1,), 0)
    a1 = torch.mul(a0, 2)
    a2 = a1[0:1]
    a3 = a1[::2]
    a5 = a4.unsqueeze(0)
    a5.requires_grad_()
    return (a2, a3, a5), named(locals())

def f(x0, x1, x2):
    v0 = torch.view_as_real(x2)
    v1 = v0[..., 0]
    with torch.no_grad():
        v2 = v1.abs_()
    x0.add_(1)
    return x2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
