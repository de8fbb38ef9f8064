# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('The tensor has a non-zero number of elements, but its data is not allocated yet.')"
# keys.aot_eager = "(exception, forward, RuntimeError: The tensor has a non-zero number of elements, but its data is not allocated yet)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.int64, device)
    a0 = strided(s0, torch.int64, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.zero_()
    v1 = x0.clone()
    torch.ops.inductor.resize_storage_bytes_.default(v1, 0)
    v0.data = x0
    return v1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
