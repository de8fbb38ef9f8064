# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Cannot backprop through mirrored meta, file a bug in PyTorch')"
# keys.aot_function = "(exception, forward, RuntimeError: Cannot backprop through mirrored meta, file a bug in PyTorch)"
# keys.aot_eager = "(gradient-none, gradient)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    a0.requires_grad_()
    a2 = a0.clone()
    return (a2, a1), named(locals())

def f(x0, x1):
    v0 = x1.clone()
    x0.zero_()
    x0.backward(v0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
