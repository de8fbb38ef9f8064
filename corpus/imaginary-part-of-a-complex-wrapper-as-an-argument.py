# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('view_as_real is only supported for complex tensors')"
# keys.aot_function = "(exception, forward, RuntimeError: view_as_real is only supported for complex tensors)"
# keys.aot_eager = "(exception, forward, RuntimeError: view_as_real is only supported for complex tensors)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = wrapped.tagged(a0)
    a2 = torch.rsub(a1, complex(0.0, 0.0))
    a3 = a2.imag
    return (a3,), named(locals())

def f(x0):
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
