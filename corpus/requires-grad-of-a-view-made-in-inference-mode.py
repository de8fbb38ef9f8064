# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after backward of call 1: eager raises nothing, compiled raises RuntimeError('element 0 of tensors does not require grad and does not have a grad_fn')"
# keys.aot_function = "(exception, backward, RuntimeError: element N of tensors does not require grad and does not have a grad_fn)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    with torch.inference_mode():
        a1 = a0.t()
    return (a1,), named(locals())

def f(x0):
    x0.requires_grad_()
    return x0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
