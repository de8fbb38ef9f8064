# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('to - 1 is out of bounds for bool'), compiled raises nothing"
# keys.aot_eager = "(exception, forward, missing RuntimeError: to - N is out of bounds for bool)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    return (), named(locals())

def f():
    torch.randint(0, 3, (), dtype=torch.bool)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
