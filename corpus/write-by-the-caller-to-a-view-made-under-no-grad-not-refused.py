# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "none found"
# difference = "exception of call after backward of call 1: eager raises RuntimeError('A view was created in no_grad mode and its base or another view of its base has been modified inplace with grad mode enabled. Given that this use case is ambiguous and error-prone, it is forbidden. Yo'), compiled raises nothing"
# keys.aot_function = "(exception, backward, missing RuntimeError: A view was created in no_grad mode and its base or another view of its base has been modified inplace with grad mode ...)"
# keys.aot_eager = "(leafness, output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0, [a0]), named(locals())

def f(x0, x1):
    v0 = x0.clone()
    x1.insert(0, v0)
    with torch.no_grad():
        v1 = x0.t()
    return v1
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "probe", "site": "output", "index": 0, "seed": 1},
        {"do": "backward", "roots": (0,)},
    )},
]
main(__file__)
