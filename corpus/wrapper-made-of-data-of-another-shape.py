# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "shape of a0 after forward of call 1: eager (2, 1), compiled (1,)"
# keys.aot_function = "(shape, input)"
# keys.aot_eager = "(exception, forward, IndexError: list index out of range)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([2], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    a1 = a0.expand((2, 1))
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.data = x1
    v2 = wrapped.differentiable(x0)
    return [v2, v2]
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
