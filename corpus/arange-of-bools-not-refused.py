# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises NotImplementedError('\u0022arange_cpu\u0022 not implemented for \u005c'Bool\u005c''), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing NotImplementedError: 'X' not implemented for 'X')"
# keys.aot_eager = "(exception, forward, missing NotImplementedError: 'X' not implemented for 'X')"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    return (), named(locals())

def f():
    torch.arange(6, dtype=torch.bool)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
