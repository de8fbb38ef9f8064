# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError(\u0022output with shape [] doesn't match the broadcast shape [1]\u0022)"
# keys.aot_eager = "(exception, forward, RuntimeError: output with shape [N] doesn't match the broadcast shape [N])"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (1,), (1,), 0)
    a2 = a0.clone()
    return (a2, a1), named(locals())

def f(x0, x1):
    x0.zero_()
    x1.zero_()
    return x1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
