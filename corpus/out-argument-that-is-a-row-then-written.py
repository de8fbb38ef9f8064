# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError(\u0022output with shape torch.Size([]) doesn't match the broadcast shape (1,)\u0022)"
# keys.aot_function = "(exception, forward, RuntimeError: output with shape torch.Size([N]) doesn't match the broadcast shape [N])"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    v1 = v0[0]
    torch.cumsum(x0, 0, out=v1)
    v1.add_(x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
