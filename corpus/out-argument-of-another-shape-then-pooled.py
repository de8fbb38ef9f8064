# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but got:[1]')"
# keys.aot_function = "(exception, forward, RuntimeError: max_poolNd: Expected ND or ND (batch mode) tensor with optional N dim batch size for input, but got:[N])"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.stack([x0])
    torch.cumsum(v0, 0, out=x0)
    torch.nn.functional.max_pool1d(x0, 1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
