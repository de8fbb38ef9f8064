# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Attempted to resize a view tensor to a larger size. This is not allowed in the functionalization pass')"
# note = "aot_function raises an error about `resize_`; aot_eager, where Dynamo cuts the function, ends with a segmentation fault"
# alone = ["aot_eager"]
# keys.aot_function = "(exception, forward, RuntimeError: Attempted to resize a view tensor to a larger size)"
# keys.aot_eager = "(crash, process, killed by SIGSEGV)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.t()
    v0.resize_((4,))
    x0.zero_()
    v1, v2, v3, v4 = torch.unbind(v0)
    return v2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
