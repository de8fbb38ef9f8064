# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError(\u0022Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for training, and gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and henc\u0022), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: Can't detach views in-place)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0, requires_grad=True)
    a1 = a0.clone()
    a2 = a1.view((1,))
    return (a2,), named(locals())

def f(x0):
    x0.detach_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
