# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Cannot backprop through mirrored meta, file a bug in PyTorch')"
# keys.aot_function = "(exception, forward, RuntimeError: Cannot backprop through mirrored meta, file a bug in PyTorch)"
# keys.aot_eager = "(exception, forward, RuntimeError: attempting to assign a gradient of size 'X' to a tensor of size 'X')"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 1), (1, 1), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    x0.backward(x0, inputs=[x0])
    x0.t_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
