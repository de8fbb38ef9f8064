# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('value cannot be converted to type float without overflow'), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: value cannot be converted to type float without overflow)"
# keys.aot_eager = "(exception, forward, missing RuntimeError: value cannot be converted to type float without overflow)"
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
    x0.new_full((), complex(0.0, 1.0))
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
