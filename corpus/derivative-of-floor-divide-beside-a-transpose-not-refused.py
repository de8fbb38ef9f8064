# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/148856"
# difference = "exception of call after grad of call 1: eager raises RuntimeError('derivative for aten::floor_divide_ is not implemented'), compiled raises nothing"
# keys.aot_function = "(exception, grad, missing RuntimeError: derivative for aten::X is not implemented)"
# keys.aot_eager = "(exception, forward, RuntimeError: derivative for aten::X is not implemented)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    v0 = x0.clone()
    x0.t_()
    v0.floor_divide_(1)
    v1 = x0.clone()
    return (v0, v1)
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
