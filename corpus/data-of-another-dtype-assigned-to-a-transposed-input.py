# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "dtype of a2 after forward of call 1: eager torch.float32, compiled torch.int64"
# keys.aot_function = "(dtype, input)"
# keys.aot_eager = "(exception, forward, AssertionError: torch.T != torch.T)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.int64, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s1, torch.float32, (), (), 0)
    a1 = strided(s0, torch.int64, (1,), (1,), 0)
    a2 = a1.t()
    return (a0, a2), named(locals())

def f(x0, x1):
    x1.data = x0
    return x1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
