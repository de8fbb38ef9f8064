# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "identity of output[1][1] after forward of call 1: eager is the same object as nothing before it, compiled is the same object as output[0]"
# keys.aot_function = "(identity, none vs output-output)"
# keys.aot_eager = "(identity, none vs output-output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0, v1 = torch.sort(x0)
    v5 = torch.nn.functional.hardtanh(x0)
    v0.set_(v5)
    return (v5, [v1, v0, v0])
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
