# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "requires-grad of a0 after forward of call 1: eager False, compiled True"
# keys.aot_function = "(requires-grad, input)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (), (), 0)
    return (a1, a0), named(locals())

def f(x0, x1):
    torch.utils.swap_tensors(x0, x1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
