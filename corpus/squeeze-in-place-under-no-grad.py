# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Function AbsBackward0 returned an invalid gradient at index 0 - got [2] but expected shape compatible with [1, 2]')"
# keys.aot_function = "(exception, forward, RuntimeError: Function X returned an invalid gradient at index N - got [N] but expected shape compatible with [N])"
# keys.aot_eager = "(exception, forward, RuntimeError: Function X returned an invalid gradient at index N - got [N] but expected shape compatible with [N])"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 2), (2, 1), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v1 = torch.mul(x0, 2)
    with torch.no_grad():
        v1.squeeze_()
    v0 = torch.abs(v1)
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
