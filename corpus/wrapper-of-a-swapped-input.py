# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "aliasing of output.elem after forward of call 1: eager shares storage with a1, compiled shares storage with a0"
# keys.aot_function = "(aliasing, output-input vs another output-input)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    torch.utils.swap_tensors(x1, x0)
    v0 = wrapped.tagged(x1)
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
