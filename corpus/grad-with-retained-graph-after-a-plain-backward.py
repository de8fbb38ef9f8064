# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/139669"
# difference = "exception of call after grad of call 2: eager raises nothing, compiled raises RuntimeError('This backward function was compiled with non-empty donated buffers which requires create_graph=False and retain_graph=False. Please keep backward(create_graph=False, retain_graph=False) across all bac')"
# note = "`retain_graph=True` is refused, since a backward without `retain_graph` was compiled first"
# keys.aot_function = "(exception, grad, later call, RuntimeError: This backward function was compiled with non-empty donated buffers which requires create_graph=False and ...)"
# keys.aot_eager = "(exception, backward, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = torch.mul(a0, 0)
    return (a1,), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = torch.mul(a0, 0)
    return (a1,), named(locals())

def f(x0):
    x0.sin_()
    return x0
CALLS = [
    {"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)},
    {"inputs": make_inputs_1, "steps": ({"do": "backward", "roots": (0,), "way": "grad", "graph": "retained"},)},
]
main(__file__)
