# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('self.shape_env must not be None')"
# keys.aot_function = "(exception, forward, AssertionError: self.shape_env must not be None)"
# keys.aot_eager = "(exception, forward, AssertionError: input_info mismatch at inner_idx=N, outer_idx=N: InputAliasInfo(...))"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 2], torch.float32, device)
    s1 = storage([], torch.complex64, device)
    a0 = strided(s0, torch.float32, (2, 1), (1, 1), 0)
    a2 = strided(s1, torch.complex64, (2, 0, 2), (2, 2, 1), 0, requires_grad=True)
    a1 = wrapped.jagged(a0)
    a1.requires_grad_()
    a3 = a2.real
    return (a1, a0, a2, a3), named(locals())

def f(x0, x1, x2, x3):
    v0 = x1.expand((2, 2, 2))
    with torch.no_grad():
        x0.copy_(x0)
    v10 = torch.sign(x0)
    return (v10, x3)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
