# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises TypeError('pow() received an invalid combination of arguments - got (NoneType, int), but expected one of:')"
# keys.aot_function = "(exception, forward, TypeError: pow() received an invalid combination of arguments - got (NoneType, int), but expected one of:)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a0), named(locals())

def f(x0, x1):
    v0, = torch.autograd.grad([x0], [x1], [x0], allow_unused=True)
    torch.pow(v0, 0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
