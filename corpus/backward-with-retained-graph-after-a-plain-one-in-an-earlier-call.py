# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "https://github.com/pytorch/pytorch/pull/139669"
# difference = "exception of call after backward of call 2: eager raises nothing, compiled raises RuntimeError('This backward function was compiled with non-empty donated buffers which requires create_graph=False and retain_graph=False. Please keep backward(create_graph=False, retain_graph=False) across all bac')"
# note = "`retain_graph=True` is refused, since the first call's backward was without"
# keys.aot_function = "(exception, backward, later call, RuntimeError: This backward function was compiled with non-empty donated buffers which requires create_graph=False and ...)"
# keys.aot_eager = "(exception, backward, later call, RuntimeError: This backward function was compiled with non-empty donated buffers which requires create_graph=False and ...)"
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
    v0 = torch.roll(x0, 0)
    v1 = torch.mul(v0, x0)
    return v1
CALLS = [
    {"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)},
    {"inputs": None, "steps": ({"do": "backward", "roots": (0,), "graph": "retained"},)},
]
main(__file__)
