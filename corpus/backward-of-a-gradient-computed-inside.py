# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/183603"
# difference = "exception of call after backward of call 1: eager raises nothing, compiled raises RuntimeError('torch.compile with aot_autograd does not currently support double backward')"
# keys.aot_eager = "(exception, backward, RuntimeError: torch.compile with aot_autograd does not currently support double backward)"
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
    v1, = torch.autograd.grad([v0], [x0], [v0], create_graph=True)
    return v1
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
