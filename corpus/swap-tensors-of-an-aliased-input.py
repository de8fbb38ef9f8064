# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "aliasing of a1 after forward of call 1: eager shares storage with nothing before it, compiled shares storage with a0"
# keys.aot_function = "(aliasing, none vs input-input)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s0, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = x0.clone()
    torch.utils.swap_tensors(x0, v0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
