# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/90507"
# difference = "exception of call after probe of call 1: eager raises nothing, compiled raises RuntimeError('Output 0 of CompiledFunction is a view and is being modified inplace. This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic to handle view+inpl')"
# keys.aot_function = "(exception, probe, RuntimeError: Output N of X is a view and is being modified inplace)"
# keys.aot_eager = "(exception, probe, RuntimeError: Output N of X is a view and is being modified inplace)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    v0.t_()
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "probe", "site": "output", "index": 0, "seed": 1, "how": "grad"},)}]
main(__file__)
