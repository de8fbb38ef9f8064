# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 32 --examples 1500, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('derivative for set_ is not implemented')"
# keys.aot_function = "(exception, forward, RuntimeError: derivative for set_ is not implemented)"
# keys.aot_eager = "(exception, forward, RuntimeError: derivative for set_ is not implemented)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([-2], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a2 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    return (a2,), named(locals())

def f(x2):
    v0 = x2.clone()
    v0.set_(v0)
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
