# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/115249"
# difference = "identity of output after forward of call 1: eager is the same object as a0, compiled is the same object as nothing before it"
# keys.aot_function = "(identity, output-input vs none)"
# keys.aot_eager = "(identity, output-input vs none)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = Module.dropout(x0, False)
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
