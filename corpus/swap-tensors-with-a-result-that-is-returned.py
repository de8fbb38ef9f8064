# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3104, reduced"
# issue = "none found"
# difference = "identity of output after forward of call 1: eager is the same object as nothing before it, compiled is the same object as a0"
# keys.aot_function = "(identity, none vs output-input)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([2, -2, -1, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 2), (2, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v1 = torch.tril(x0)
    torch.utils.swap_tensors(x0, v1)
    return v1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
