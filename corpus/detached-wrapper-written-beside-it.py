# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Attempted to set the storage of a tensor on device \u0022meta\u0022 to a storage on different device \u0022cpu\u0022.  This is no longer allowed; the devices must match.')"
# keys.aot_function = "(exception, forward, RuntimeError: Attempted to set the storage of a tensor on device 'X' to a storage on different device 'X')"
# keys.aot_eager = "(exception, forward, RuntimeError: Attempted to set the storage of a tensor on device 'X' to a storage on different device 'X')"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = wrapped.tagged(a0)
    a2 = a1.detach()
    return (a1, a2), named(locals())

def f(x0, x1):
    x0.clone()
    x1.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
