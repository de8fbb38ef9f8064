# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "type of result[0] after grad of call 1: eager ConstantExtraMetadataTensor, compiled Tensor"
# keys.aot_function = "(type, result after grad)"
# keys.aot_eager = "(type, result after grad)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    a1 = wrapped.constant(a0)
    a1.requires_grad_()
    return (a1,), named(locals())

def f(x0):
    v0, v1 = torch.split(x0, [1, 0])
    return v1
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
