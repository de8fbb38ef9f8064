# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after backward of call 1: eager raises RuntimeError('element 0 of tensors does not require grad and does not have a grad_fn'), compiled raises nothing"
# keys.aot_function = "(exception, backward, missing RuntimeError: element N of tensors does not require grad and does not have a grad_fn)"
# keys.aot_eager = "(leafness, input)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return ([a0],), named(locals())

def f(x0):
    v0 = x0[0]
    with torch.no_grad():
        v1 = v0.t()
    x0[0] = v1
    return x0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
