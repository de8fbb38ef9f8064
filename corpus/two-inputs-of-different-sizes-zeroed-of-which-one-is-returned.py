# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 0')"
# keys.aot_eager = "(exception, forward, RuntimeError: The size of tensor a [N] must match the size of tensor b [N] at non-singleton dimension N)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0], torch.float32, device)
    s1 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (3,), (1,), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (2,), (1,), 0)
    a2 = a0.clone()
    return (a2, a1), named(locals())

def f(x0, x1):
    x0.zero_()
    v0 = x1.zero_()
    return x1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
