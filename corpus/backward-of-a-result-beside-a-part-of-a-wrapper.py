# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "exception of call after backward of call 1: eager raises nothing, compiled raises AttributeError(\u0022'Tensor' object has no attribute 'a'\u0022)"
# keys.aot_function = "(exception, backward, AttributeError: 'X' object has no attribute 'X')"
# keys.aot_eager = "(exception, backward, AttributeError: 'X' object has no attribute 'X')"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.float64, device)
    a0 = strided(s0, torch.float64, (0, 2), (2, 1), 0, requires_grad=True)
    a1 = wrapped.differentiable(a0)
    a2 = torch.mul(a1, 2)
    return (a2,), named(locals())

def f(x0):
    v0 = x0.swapaxes(-1, 0)
    v1 = torch.randint_like(v0, 3)
    v2, v3 = torch.unsafe_chunk(v1, 2, 1)
    return [v0, v3]
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
