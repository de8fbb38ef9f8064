# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises TypeError(\u0022mul(): argument 'input' (position 1) must be Tensor, not NoneType\u0022)"
# keys.aot_function = "(exception, forward, TypeError: mul(): argument 'X' (position N) must be Tensor, not NoneType)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a0), named(locals())

def f(x0, x1):
    v0, = torch.autograd.grad([x1], [x0], [x0], allow_unused=True)
    torch.mul(v0, 0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
