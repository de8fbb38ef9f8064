# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('invalid gradient at index 0 - got [] but expected shape compatible with [1]')"
# keys.aot_function = "(exception, forward, RuntimeError: invalid gradient at index N - got [N] but expected shape compatible with [N])"
# keys.aot_eager = "(exception, forward, RuntimeError: invalid gradient at index N - got [N] but expected shape compatible with [N])"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.ones(())
    v1 = v0.t()
    v0.set_(x0)
    return v1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
