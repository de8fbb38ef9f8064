# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "aliasing of output[1] after forward of call 1: eager shares storage with output[0], compiled shares storage with nothing before it"
# keys.aot_function = "(aliasing, output-output vs none)"
# keys.aot_eager = "(aliasing, output-output vs none)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 1], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.neg(x0)
    v1, v2 = torch.unsafe_chunk(v0, 2)
    v1.neg_()
    return (v0, v1)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
