# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "storage-offset of a0 after forward of call 1: eager 1, compiled 0"
# keys.aot_function = "(storage-offset, input, both raise)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    a1 = strided(s0, torch.float32, (1,), (1,), 1)
    return (a0, a1), named(locals())

def f(x0, x1):
    torch.utils.swap_tensors(x0, x1)
    v9 = torch.ones((7,), device=x0.device)
    x0.copy_(v9)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
