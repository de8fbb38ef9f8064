# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "none found"
# difference = "values of output after forward of call 1: eager 1.0 at [0] (1 of 2 elements differ), compiled 0.0"
# note = "a write to a part that `unsafe_chunk` gave does not reach the whole tensor"
# keys.aot_function = "(values, output)"
# keys.aot_eager = "(values, output)"
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
    v0 = x0.clone()
    v1, v2 = torch.unsafe_chunk(v0, 2)
    v1.copy_(v2)
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
