# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/186355"
# difference = "exception of call after grad of call 1: eager raises RuntimeError('The differentiated Tensor at index 1 appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior.'), compiled raises nothing"
# keys.aot_function = "(exception, grad, missing RuntimeError: The differentiated Tensor at index N appears to not have been used in the graph)"
# keys.aot_eager = "(exception, grad, missing RuntimeError: The differentiated Tensor at index N appears to not have been used in the graph)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([2, -2], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s0, torch.float32, (), (), 1, requires_grad=True)
    return (a0, a1), named(locals())

def f(x0, x1):
    v3 = torch.neg(x0)
    v4 = torch.neg(x1)
    return (v3, v4)
CALLS = [
    {"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad of used", "inputs": (0, 1)},)},
]
main(__file__)
