# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('It is not possible to get the gradient edge for a Tensor that does not require gradients'), compiled raises nothing"
# keys.aot_eager = "(exception, forward, missing RuntimeError: It is not possible to get the gradient edge for a Tensor that does not require gradients)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.t()
    torch.utils.swap_tensors(x0, x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
