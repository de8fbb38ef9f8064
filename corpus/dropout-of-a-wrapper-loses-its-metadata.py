# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "metadata of output after forward of call 1: eager ('tag', 2), compiled ('tag', 1)"
# keys.aot_function = "(metadata, output)"
# keys.aot_eager = "(metadata, output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = wrapped.tagged(a0)
    return (a1,), named(locals())

def f(x0):
    v3 = torch.nn.functional.dropout(x0, p=0.5)
    return v3
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
