# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 20262503 --strategy strategies:mixed"
# issue = "not looked up"
# difference = "exception of call after forward of call 2: eager raises RuntimeError(\u0022hardtanh(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad.\u0022), compiled raises nothing"
# keys.aot_eager = "(exception, forward, later call, missing RuntimeError: hardtanh(): functions with out=..)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    with torch.inference_mode():
        v0 = x0.clone()
        v0.requires_grad = True
    torch.nn.functional.hardtanh(v0)
    return None
CALLS = [{"inputs": make_inputs_0, "grad_mode": "no_grad"}, {"inputs": None}]
main(__file__)
