# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after probe of call 1: eager raises nothing, compiled raises RuntimeError('out != nullptr INTERNAL ASSERT FAILED at \u0022/__w/pytorch/pytorch/torch/csrc/autograd/variable.cpp\u0022:207, please report a bug to PyTorch. ')"
# keys.aot_function = "(exception, probe, RuntimeError: out != nullptr INTERNAL ASSERT FAILED at 'X':N, please report a bug to PyTorch)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    return (x0, v0)
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "hook", "kind": "retain", "site": "output", "index": 1},
        {"do": "probe", "site": "output", "index": 1, "seed": 1, "how": "grad"},
    )},
]
main(__file__)
