# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/197399"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises IndexError('index -1 is out of bounds for dimension 0 with size 0')"
# keys.aot_function = "(exception, forward, IndexError: index N is out of bounds for dimension N with size N)"
# keys.aot_eager = "(exception, forward, IndexError: index N is out of bounds for dimension N with size N)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.sum()
    v0.set_(x0)
    v0[-1] = 0
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
