# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/104505"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('During torch.compile, encountered a mutation on a view chain of length 2, where view 1 was an as_strided() call. as_strided() is non-compositional, and therefore is not possible to functionalize prope')"
# keys.aot_function = "(exception, forward, RuntimeError: During torch.compile, encountered a mutation on a view chain of length N, where view N was an as_strided() call)"
# keys.aot_eager = "(exception, forward, RuntimeError: During torch.compile, encountered a mutation on a view chain of length N, where view N was an as_strided() call)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.uint8, device)
    a0 = strided(s0, torch.uint8, (1,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.unflatten(0, (-1, 1))
    v0.fill_diagonal_(1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
