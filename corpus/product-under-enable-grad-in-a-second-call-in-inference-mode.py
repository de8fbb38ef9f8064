# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises RuntimeError('Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked by autograd. To work around this, you can make a clone to get a normal tensor')"
# keys.aot_eager = "(exception, forward, later call, RuntimeError: Inference tensors cannot be saved for backward)"
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
        v0 = torch.ones((0,))
        v1 = torch.mul(x0, v0)
    return v1
CALLS = [{"inputs": make_inputs_0}, {"inputs": None, "grad_mode": "inference"}]
main(__file__)
