# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Attempted to set the storage of a tensor on device \u0022meta\u0022 to a storage on different device \u0022cpu\u0022.  This is no longer allowed; the devices must match.')"
# keys.aot_function = "(exception, forward, RuntimeError: Attempted to set the storage of a tensor on device 'X' to a storage on different device 'X')"
# keys.aot_eager = "(exception, backward, missing RuntimeError: setStorage: sizes [N], strides [N], storage offset N, and itemsize N requiring a storage size of N are out of bounds ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 2), (2, 1), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.nn.functional.avg_pool1d(x0, 2)
    with torch.no_grad():
        v0.set_(x0, 1, (1, 1))
    return v0
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "probe", "site": "output", "index": 0, "seed": 1, "how": "grad"},
        {"do": "backward", "roots": (0,)},
    )},
]
main(__file__)
