# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/104505"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises RuntimeError('During torch.compile, encountered a mutation on a view chain of length 2, where view 1 was an as_strided() call. as_strided() is non-compositional, and therefore is not possible to functionalize prope')"
# keys.aot_eager = "(exception, forward, later call, RuntimeError: During torch.compile, encountered a mutation on a view chain of length N, where view N was an as_strided() call)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1), (1, 1), 0)
    with torch.inference_mode():
        a1 = a0.clone()
    return (a1,), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1), (1, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.detach()
    v0.fill_diagonal_(1)
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
