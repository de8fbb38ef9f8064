# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Number of indices (1) should be equal to tensor.size(dim) (2), for dim=0')"
# keys.aot_function = "(exception, forward, RuntimeError: Number of indices [N] should be equal to tensor.size(dim) [N], for dim=N)"
# keys.aot_eager = "(exception, forward, RuntimeError: Number of indices [N] should be equal to tensor.size(dim) [N], for dim=N)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.detach()
    v1 = v0.zero_()
    v2 = x0.sum()
    v1.data = v2
    v3 = torch.tensor([0])
    torch.index_add(v0, 0, v3, v0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
