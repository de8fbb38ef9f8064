# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError(\u0022'weight' must be 2-D, got 0-D\u0022)"
# keys.aot_function = "(exception, forward, AssertionError: 'X' must be N-D, got N-D)"
# keys.aot_eager = "(exception, forward, AssertionError: 'X' must be N-D, got N-D)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.int64, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s0, torch.float32, (1, 1), (1, 1), 0)
    a2 = strided(s1, torch.int64, (), (), 0)
    return (a0, a1, a2), named(locals())

def f(x0, x1, x2):
    x0.data = x1
    x0.t_()
    torch.nn.functional.embedding(x2, x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
