# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "aliasing of output after forward of call 1: eager shares storage with a0, compiled shares storage with nothing before it"
# keys.aot_function = "(aliasing, output-input vs none)"
# keys.aot_eager = "(aliasing, output-input vs none)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], torch.float32, device)
    a0 = strided(s0, torch.float32, (3, 3), (3, 1), 2)
    return (a0,), named(locals())

def f(x0):
    v7, v8, v9 = torch.unsafe_split(x0, 1, -2)
    v11 = v9.pow_(2)
    return v11
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
