# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError(\u0022add(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad.\u0022)"
# keys.aot_eager = "(exception, forward, RuntimeError: add(): functions with out=..)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a1), named(locals())

def f(x0, x1):
    with torch.inference_mode():
        with torch.enable_grad():
            torch.add(x1, x1, out=x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
