# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after backward of call 1: eager raises RuntimeError('Output 0 of View is a view of a view which was created in no_grad mode and its base or another view of its base has been modified inplace with grad mode enabled. Given that this use case is ambiguous '), compiled raises nothing"
# keys.aot_function = "(exception, backward, missing RuntimeError: Output N of X is a view of a view which was created in no_grad mode and its base or another view of its base has been ...)"
# keys.aot_eager = "(exception, backward, missing RuntimeError: Output N of X is a view of a view which was created in no_grad mode and its base or another view of its base has been ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.int64, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.int64, (), (), 0)
    with torch.no_grad():
        a2 = a0.t()
    return ([a0, a2], a1), named(locals())

def f(x0, x1):
    v0 = x0[1]
    v1 = torch.take_along_dim(v0, x1)
    return (v1, x0)
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "probe", "site": "output", "index": 1, "seed": 1},
        {"do": "backward", "roots": (0,)},
    )},
]
main(__file__)
