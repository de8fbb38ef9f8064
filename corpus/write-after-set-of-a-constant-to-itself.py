# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 32 --examples 1500, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('cannot mutate tensors with frozen storage')"
# keys.aot_function = "(exception, forward, RuntimeError: cannot mutate tensors with frozen storage)"
# keys.aot_eager = "(exception, forward, RuntimeError: cannot mutate tensors with frozen storage)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    return (), named(locals())

def f():
    v0 = torch.tensor([])
    v0.set_(v0)
    v0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
