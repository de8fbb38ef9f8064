# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 62 --examples 2000, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/104505"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('During torch.compile, encountered a mutation on a view chain of length 2, where view 1 was an as_strided() call. as_strided() is non-compositional, and therefore is not possible to functionalize prope')"
# keys.aot_function = "(exception, forward, RuntimeError: During torch.compile, encountered a mutation on a view chain of length N, where view N was an as_strided() call)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s0, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = x0.as_strided((0,), (0,))
    v0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
