# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "aliasing of output[0] after forward of call 1: eager shares storage with a0, compiled shares storage with nothing before it"
# keys.aot_function = "(aliasing, output-input vs none)"
# keys.aot_eager = "(aliasing, output-input vs none)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    x0.zero_()
    v0 = torch.unsafe_split(x0, 1)
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
