# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 20262502 --strategy strategies:backwards"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('expected src to have a size equal to the slice of self. src size = torch.Size([2]), slice size = [0]')"
# note = "the trace raises, or the storage offset is wrong"
# keys.aot_function = "(exception, forward, RuntimeError: expected src to have a size equal to the slice of self)"
# keys.aot_eager = "(storage-offset, input)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.as_strided((0,), (0,), 1)
    v1 = torch.ones((0, 2))
    torch.sum(v1, 0, out=v0)
    v2 = torch.view_as_complex(x0)
    x0.data = v0
    v3 = v2.t()
    v2.t_()
    return v3
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
