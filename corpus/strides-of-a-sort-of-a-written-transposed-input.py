# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3104, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/133512"
# difference = "stride of output after forward of call 1: eager (1, 2), compiled (2, 1)"
# keys.aot_function = "(stride, output)"
# keys.aot_eager = "(stride, output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([3, 0, 2, 4], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 2), (1, 2), 0)
    return (a0,), named(locals())

def f(x0):
    v2 = torch.ge(x0, 1)
    v1 = torch.neg(x0)
    v3 = x0.masked_scatter_(v2, v1)
    v4, v5 = torch.sort(x0, dim=1, stable=True)
    return v5
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
