# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3104, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises NotImplementedError(\u0022argument of type: <class 'torch.storage.UntypedStorage'>\u0022)"
# keys.aot_function = "(exception, forward, NotImplementedError: argument of type: <class 'X'>)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v1 = torch.tensor([0], device=x0.device)
    v4 = v1.untyped_storage()
    v1.set_(v4)
    return x0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
