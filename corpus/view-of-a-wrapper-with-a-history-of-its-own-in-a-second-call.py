# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after backward of call 2: eager raises nothing, compiled raises AttributeError(\u0022'Tensor' object has no attribute 'a'\u0022)"
# keys.aot_eager = "(exception, backward, later call, AttributeError: 'X' object has no attribute 'X')"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())
def make_inputs_1(device):
    s0 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (0,), (1,), 0, requires_grad=True)
    a1 = wrapped.differentiable(a0)
    return (a1,), named(locals())

def f(x0):
    v0 = x0.t()
    return v0
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
