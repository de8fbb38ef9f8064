# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('expected src to have a size equal to the slice of self. src size = torch.Size([1]), slice size = []')"
# keys.aot_function = "(exception, forward, RuntimeError: expected src to have a size equal to the slice of self)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (1,), (1,), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.resize_(())
    torch.cat([x1], out=x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
