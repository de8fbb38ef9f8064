# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Expected use_count of t1 to be 1 or 2 with an AccumulateGrad node but got 2 make sure you are not holding references to the tensor in other places.')"
# keys.aot_function = "(exception, forward, RuntimeError: Expected use_count of tN to be N or N with an AccumulateGrad node but got N make sure you are not holding references to ...)"
# keys.aot_eager = "(exception, forward, RuntimeError: Expected use_count of tN to be N or N with an AccumulateGrad node but got N make sure you are not holding references to ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1, 2), (2, 2, 1), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0, v1 = torch.split(x0, 1, 2)
    v2 = v0.view(())
    torch.utils.swap_tensors(v0, v0)
    return v2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
