# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "stride of a0 after forward of call 1: eager (1, 2), compiled (2, 1)"
# keys.aot_function = "(stride, input, both raise)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 2), (2, 1), 0)
    return (a0,), named(locals())

def f(x0):
    x0.t_()
    v9 = torch.ones((7,), device=x0.device)
    x0.copy_(v9)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
