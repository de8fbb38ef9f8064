# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after backward of call 1: eager raises nothing, compiled raises RuntimeError('Tensor must have a last dimension with stride 1')"
# keys.aot_function = "(exception, backward, RuntimeError: Tensor must have a last dimension with stride N)"
# keys.aot_eager = "(exception, backward, RuntimeError: Tensor must have a last dimension with stride N)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (0,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.view_as_real(x0)
    v1 = v0.clone()
    return (v1, v0)
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0, 1), "cotangents": (("expanded", 0),)},)}]
main(__file__)
