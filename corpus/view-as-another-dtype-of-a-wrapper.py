# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Attempted to set the storage of a tensor on device \u0022meta\u0022 to a storage on different device \u0022cpu\u0022.  This is no longer allowed; the devices must match.')"
# keys.aot_function = "(exception, forward, RuntimeError: Attempted to set the storage of a tensor on device 'X' to a storage on different device 'X')"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = wrapped.tagged(a0)
    a2 = a1.detach()
    return (a1, a2), named(locals())

def f(x0, x1):
    v0 = x1.view(torch.int32)
    v0.zero_()
    return [x0, v0]
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
