# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Mismatch in shape: grad_output[0] has a shape of torch.Size([0]) and output[0] has a shape of torch.Size([]).')"
# keys.aot_function = "(exception, forward, RuntimeError: Mismatch in shape: grad_output[N] has a shape of torch.Size([N]) and output[N] has a shape of torch.Size([N]))"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    v0 = x0.t()
    x0.set_()
    v1 = v0.clone()
    torch.autograd.grad([v0], [x0], [v1])
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
