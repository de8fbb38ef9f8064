# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/114975"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Metadata mutations are currently not allowed on tensor subclasses')"
# keys.aot_function = "(exception, forward, RuntimeError: Metadata mutations are currently not allowed on tensor subclasses)"
# keys.aot_eager = "(exception, forward, RuntimeError: Metadata mutations are currently not allowed on tensor subclasses)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 1), (1, 1), 0)
    a1 = wrapped.constant(a0)
    return (a1,), named(locals())

def f(x0):
    v0 = x0.zero_()
    v0.t_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
