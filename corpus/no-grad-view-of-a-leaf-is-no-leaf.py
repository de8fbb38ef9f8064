# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "leafness of output after forward of call 1: eager True, compiled False"
# keys.aot_function = "(leafness, output)"
# keys.aot_eager = "(leafness, output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    with torch.no_grad():
        v3 = x0.unfold(0, 2, 1)
    return v3
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
