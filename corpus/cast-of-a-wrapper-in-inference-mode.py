# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('self.dim() cannot be 0 to view Double as Bool (different element sizes)')"
# keys.aot_function = "(exception, forward, RuntimeError: self.dim() cannot be N to view T as T (different element sizes))"
# keys.aot_eager = "(exception, forward, RuntimeError: self.dim() cannot be N to view T as T (different element sizes))"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float64, device)
    a0 = strided(s0, torch.float64, (), (), 0)
    a1 = wrapped.tagged(a0)
    return (a1,), named(locals())

def f(x0):
    with torch.inference_mode():
        v0 = x0.bool()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
