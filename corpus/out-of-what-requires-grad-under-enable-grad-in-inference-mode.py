# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError(\u0022neg(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad.\u0022)"
# keys.aot_eager = "(exception, forward, RuntimeError: neg(): functions with out=..)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    with torch.enable_grad():
        v0 = x0.clone()
        torch.neg(x0, out=v0)
    return None
CALLS = [{"inputs": make_inputs_0, "grad_mode": "inference"}]
main(__file__)
