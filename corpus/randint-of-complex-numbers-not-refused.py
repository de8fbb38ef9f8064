# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('check_random_bounds handles only integral, floating-point and boolean types'), compiled raises nothing"
# keys.aot_eager = "(exception, forward, missing RuntimeError: check_random_bounds handles only integral, floating-point and boolean types)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    return (), named(locals())

def f():
    torch.randint(0, 1, (), dtype=torch.complex64)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
