# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises TypeError(\u0022mul(): argument 'input' (position 1) must be Tensor, not NoneType\u0022)"
# keys.aot_eager = "(exception, forward, TypeError: mul(): argument 'X' (position N) must be Tensor, not NoneType)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([0, 0, 0, 0, 0, 0, 0, 0, 0, 0], torch.float32, device)
    a3 = strided(s1, torch.float32, (2, 2), (2, 1), 0, requires_grad=True)
    return (a3,), named(locals())

def f(x2):
    v0 = x2.t()
    v1 = v0.positive()
    v3, v4 = torch.autograd.grad([v0], [x2, v1], [x2], allow_unused=True)
    torch.mul(v4, 0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
