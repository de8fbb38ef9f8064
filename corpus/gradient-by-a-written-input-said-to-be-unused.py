# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "none found"
# difference = "exception of call after grad of call 1: eager raises nothing, compiled raises RuntimeError('The differentiated Tensor at index 1 appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior.')"
# keys.aot_function = "(exception, grad, RuntimeError: The differentiated Tensor at index N appears to not have been used in the graph)"
# keys.aot_eager = "(exception, grad, RuntimeError: The differentiated Tensor at index N appears to not have been used in the graph)"
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
    x0.zero_()
    v0 = x0.clone()
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad of used"},)}]
main(__file__)
