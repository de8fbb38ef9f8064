# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises RuntimeError('Cannot set version_counter for inference tensor')"
# alone = ["aot_eager"]
# keys.aot_eager = "(exception, forward, later call, RuntimeError: Cannot set version_counter for inference tensor)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    with torch.inference_mode():
        v0 = x0.t()
        x0.zero_()
    v0.clone()
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": None, "grad_mode": "no_grad"}]
main(__file__)
