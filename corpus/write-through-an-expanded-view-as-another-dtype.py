# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/197448"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('self.dim() cannot be 0 to view Long as Float (different element sizes)')"
# keys.aot_function = "(exception, forward, RuntimeError: self.dim() cannot be N to view T as T (different element sizes))"
# keys.aot_eager = "(exception, forward, RuntimeError: self.dim() cannot be N to view T as T (different element sizes))"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.view(torch.int32)
    v1 = v0.expand(())
    v1.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
