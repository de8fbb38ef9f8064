# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after backward of call 1: eager raises RuntimeError('element 0 of tensors does not require grad and does not have a grad_fn'), compiled raises nothing"
# keys.aot_function = "(exception, backward, missing RuntimeError: element N of tensors does not require grad and does not have a grad_fn)"
# keys.aot_eager = "(exception, backward, missing RuntimeError: element N of tensors does not require grad and does not have a grad_fn)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([-1, 2, 0, -2, 1, -1, 2, 0, -2, 1, -1, 2, 0, -2, 1, -1, 2, 0, -2, 1, -1, 2, 0, -2], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (4,), (1,), 0)
    a1 = strided(s0, torch.complex64, (12,), (1,), 0, requires_grad=True)
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.mul_(complex(0.0, -1.0))
    v0 = torch.sub(x0, complex(0.0, -1.0))
    with torch.no_grad():
        v1 = torch.ops.aten.alias.default(x1)
    return (v1, v0)
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "backward", "roots": (0,), "cotangents": (("pattern", 1),), "graph": "retained"},
    )},
]
main(__file__)
