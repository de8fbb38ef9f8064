# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/197448"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.')"
# keys.aot_function = "(exception, forward, RuntimeError: Subtraction, the 'X' operator, with two bool tensors is not supported)"
# keys.aot_eager = "(exception, forward, RuntimeError: Subtraction, the 'X' operator, with two bool tensors is not supported)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.bool, device)
    a0 = strided(s0, torch.bool, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.expand(())
    v0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
