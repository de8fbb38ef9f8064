# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "none found"
# difference = "exception of call after grad of call 1: eager raises RuntimeError('derivative for set_ is not implemented'), compiled raises nothing"
# keys.aot_function = "(exception, grad, missing RuntimeError: derivative for set_ is not implemented)"
# keys.aot_eager = "(exception, grad, missing RuntimeError: derivative for set_ is not implemented)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([-1], torch.bfloat16, device)
    a0 = strided(s0, torch.bfloat16, (), (), 0, requires_grad=True)
    a0m = torch.mul(a0, 1)
    return (a0m,), named(locals())

def f(x0):
    v0, v1 = torch.broadcast_tensors(x0, x0)
    v2 = v1.set_(v0)
    return v2
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad", "graph": "retained"},)}]
main(__file__)
