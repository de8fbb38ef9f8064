# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('post accumulate grad hooks cannot be registered on non-leaf tensors')"
# keys.aot_function = "(exception, forward, RuntimeError: post accumulate grad hooks cannot be registered on non-leaf tensors)"
# keys.aot_eager = "(exception, backward, TypeError: bad operand type for unary -: 'X')"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a1, a0), named(locals())

def f(x0, x1):
    Inside.negates_after(x1)
    x1.clone()
    v0 = x0.clone()
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
