# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/184113"
# difference = "values of a0.grad after backward of call 1: eager 2.0 at [], compiled 0.0"
# note = "the backward of a custom Function that marks its input dirty is skipped"
# keys.aot_function = "(values, gradient after backward)"
# keys.aot_eager = "(values, gradient after backward)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = torch.mul(a0, 1)
    return (a1,), named(locals())

def f(x0):
    MarksDirty.apply(x0)
    v0 = x0.t()
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
