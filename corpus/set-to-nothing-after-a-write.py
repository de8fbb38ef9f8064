# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('expand: attempting to expand a dimension of length 0 -> 1!')"
# keys.aot_function = "(exception, forward, RuntimeError: output with shape [N] doesn't match the broadcast shape [N])"
# keys.aot_eager = "(exception, forward, RuntimeError: expand: attempting to expand a dimension of length N -> N!)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v1 = x0.zero_()
    v1.set_()
    return x0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
