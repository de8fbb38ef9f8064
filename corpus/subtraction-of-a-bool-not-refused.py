# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.'), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: Subtraction, the 'X' operator, with a bool tensor is not supported)"
# keys.aot_eager = "(exception, forward, missing RuntimeError: Subtraction, the 'X' operator, with a bool tensor is not supported)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.bool, device)
    s2 = storage([0, 2], torch.int64, device)
    a0 = strided(s0, torch.bool, (1,), (1,), 0)
    a1 = strided(s2, torch.int64, (2,), (1,), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = torch.sub(x1, x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
