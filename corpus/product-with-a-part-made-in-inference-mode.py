# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked by autograd. To work around this, you can make a clone to get a normal tensor')"
# keys.aot_function = "(exception, forward, RuntimeError: Inference tensors cannot be saved for backward)"
# keys.aot_eager = "(exception, forward, RuntimeError: Inference tensors cannot be saved for backward)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0, 0], torch.float32, device)
    a0 = strided(s1, torch.float32, (2,), (1,), 0)
    a1 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a1), named(locals())

def f(x0, x1):
    with torch.inference_mode():
        v0, v1 = torch.hsplit(x0, 2)
    torch.mul(x1, v0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
