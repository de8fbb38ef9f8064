# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "aliasing of a2 after forward of call 1: eager shares storage with a1, compiled shares storage with a0"
# keys.aot_function = "(aliasing, input-input vs another input-input, both raise)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    s1 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    a1 = strided(s1, torch.float32, (1, 2), (2, 1), 0)
    a2 = a0.detach()
    return (a2, a1), named(locals())

def f(x0, x1):
    v0 = x1.untyped_storage()
    x0.set_(v0)
    torch.mm(x1, x1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
