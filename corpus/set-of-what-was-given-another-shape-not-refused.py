# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 20262502 --strategy strategies:backwards"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Attempted to set the storage of a tensor on device \u0022meta\u0022 to a storage on different device \u0022cpu\u0022.  This is no longer allowed; the devices must match.')"
# keys.aot_function = "(exception, forward, RuntimeError: Attempted to set the storage of a tensor on device 'X' to a storage on different device 'X')"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    v0 = x0.untyped_storage()
    x0.set_(v0)
    with torch.no_grad():
        x0.squeeze_()
    return x0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad", "inputs": (1,)},)}]
main(__file__)
