# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/148856"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('derivative for aten::floor_divide_ is not implemented')"
# keys.aot_function = "(exception, forward, RuntimeError: derivative for aten::X is not implemented)"
# keys.aot_eager = "(exception, forward, RuntimeError: derivative for aten::X is not implemented)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([], torch.float32, device)
    a2 = strided(s1, torch.float32, (0,), (1,), 0, requires_grad=True)
    a3 = a2.clone()
    return ({"k0": [a3, a3, a2]},), named(locals())

def f(x2):
    v0 = x2["k0"]
    v1 = v0[0]
    v1.floor_divide_(2)
    return x2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
