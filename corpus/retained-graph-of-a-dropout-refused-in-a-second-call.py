# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after grad of call 2: eager raises nothing, compiled raises RuntimeError('This backward function was compiled with non-empty donated buffers which requires create_graph=False and retain_graph=False. Please keep backward(create_graph=False, retain_graph=False) across all bac')"
# keys.aot_function = "(exception, grad, later call, RuntimeError: This backward function was compiled with non-empty donated buffers which requires create_graph=False and ...)"
# keys.aot_eager = "(exception, grad, later call, RuntimeError: This backward function was compiled with non-empty donated buffers which requires create_graph=False and ...)"
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
    v0 = torch.nn.functional.dropout(x0)
    return v0
CALLS = [
    {"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)},
    {"inputs": None, "steps": ({"do": "backward", "roots": (0,), "way": "grad", "graph": "retained"},)},
]
main(__file__)
