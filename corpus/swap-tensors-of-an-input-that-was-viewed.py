# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Expected use_count of t1 to be 1 or 2 with an AccumulateGrad node but got 3 make sure you are not holding references to the tensor in other places.')"
# keys.aot_function = "(exception, forward, RuntimeError: Expected use_count of tN to be N or N with an AccumulateGrad node but got N make sure you are not holding references to ...)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = a0.t()
    return (a1,), named(locals())

def f(x0):
    v0 = x0.t()
    torch.utils.swap_tensors(x0, x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
