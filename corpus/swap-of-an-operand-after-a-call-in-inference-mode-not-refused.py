# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 2: eager raises RuntimeError('It is not possible to get the gradient edge for a Tensor that does not require gradients'), compiled raises nothing"
# keys.aot_eager = "(exception, forward, later call, missing RuntimeError: It is not possible to get the gradient edge for a Tensor that does not require gradients)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.tensor([1, 0])
    v1 = torch.mul(x0, v0)
    torch.utils.swap_tensors(v0, v0)
    return None
CALLS = [{"inputs": make_inputs_0, "grad_mode": "inference"}, {"inputs": None}]
main(__file__)
