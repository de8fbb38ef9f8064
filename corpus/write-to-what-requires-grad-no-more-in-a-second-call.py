# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises RuntimeError('a view of a leaf Variable that requires grad is being used in an in-place operation.')"
# keys.aot_eager = "(exception, forward, later call, RuntimeError: a view of a leaf Variable that requires grad is being used in an in-place operation)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    v0.requires_grad_()
    v0.requires_grad_(False)
    v1 = v0.t()
    v1.zero_()
    return None
CALLS = [{"inputs": make_inputs_0, "grad_mode": "no_grad"}, {"inputs": None}]
main(__file__)
