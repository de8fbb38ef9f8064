# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "values of output[0] after probe of call 1: eager 3 at [0, 1] (1 of 2 elements differ), compiled 0"
# keys.aot_function = "(values, output after probe)"
# keys.aot_eager = "(exception, forward, AssertionError: Encountered a set_ on a graph input, but the input has other mutations that we cannot)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0], torch.int32, device)
    a0 = strided(s0, torch.int32, (4,), (1,), 0)
    a1 = strided(s0, torch.int32, (2, 2), (2, 1), 0)
    return (a0, {"k0": a1}), named(locals())

def f(x0, x1):
    v1 = x1["k0"]
    v2 = v1[0:1]
    x1["k0"] = v2
    v1.data = x0
    v1.zero_()
    return (v2, x0)
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "probe", "site": "output", "index": 1, "seed": 1},)}]
main(__file__)
