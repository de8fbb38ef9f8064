# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "structure of output after forward of call 1: eager ; given tuple(a0, dict('k0': a0, 'k1': a0, 'n': a0)), compiled ; given tuple(a0, dict('k0': a0, 'k1': a0))"
# keys.aot_eager = "(structure, output, both raise)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a0, {"k0": a0, "k1": a0}), named(locals())

def f(x0, x1):
    x1["n"] = x0
    torch.view_as_complex(x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
