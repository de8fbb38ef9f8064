# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('minimum not implemented for complex tensors.'), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: minimum not implemented for complex tensors)"
# keys.aot_eager = "(exception, forward, missing RuntimeError: minimum not implemented for complex tensors)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    x0.minimum(x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
