# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked by autograd. To work around this, you can make a clone to get a normal tensor')"
# keys.aot_function = "(exception, forward, RuntimeError: Inference tensors cannot be saved for backward)"
# keys.aot_eager = "(rng, process)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    with torch.inference_mode():
        a1 = a0.clone()
    a2 = a0.clone()
    return (a2, a1), named(locals())

def f(x0, x1):
    torch.randn_like(x1)
    x0.zero_()
    return x1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
