# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after grad of call 1: eager raises RuntimeError('element 0 of tensors does not require grad and does not have a grad_fn'), compiled raises nothing"
# keys.aot_function = "(exception, grad, missing RuntimeError: element N of tensors does not require grad and does not have a grad_fn)"
# keys.aot_eager = "(requires-grad, output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return ([a0, a0, a0],), named(locals())

def f(x0):
    v0 = x0[0]
    v1 = v0.t()
    with torch.inference_mode():
        v2 = v0.view_as(v0)
        x0.append(v1)
    return v2
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
