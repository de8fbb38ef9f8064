# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked by autograd. To work around this, you can make a clone to get a normal tensor'), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: Inference tensors cannot be saved for backward)"
# keys.aot_eager = "(exception, forward, missing RuntimeError: Inference tensors cannot be saved for backward)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = torch.mul(a0, 2)
    return (a1,), named(locals())

def f(x0):
    with torch.inference_mode():
        v2 = x0.view(torch.complex64)
    v11 = v2.real
    v12, v13 = torch._foreach_mul([x0, v11], 2)
    return v13
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
