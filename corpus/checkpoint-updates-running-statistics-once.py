# /// aotcheck
# format = 2
# found = "aotcheck zoo --backend aot_eager, checkpointed_stack, reduced"
# issue = "none found"
# difference = "values of a1 after backward of call 1: eager 0.3799999952316284 at [0] (2 of 2 elements differ), compiled 0.20000000298023224"
# note = "eager updates running statistics again when the backward computes the block again; the backend does not"
# keys.aot_function = "(values, input after backward)"
# keys.aot_eager = "(values, input after backward)"
# keys.inductor = "(values, input after backward)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# expect.inductor."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3, -1], torch.float32, device)
    s1 = storage([0, 0], torch.float32, device)
    s2 = storage([1, 1], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 2), (2, 1), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (2,), (1,), 0)
    a2 = strided(s2, torch.float32, (2,), (1,), 0)
    return (a0, a1, a2), named(locals())

def f(x0, x1, x2):
    v0 = Inside.checkpointed_norm(x0, x1, x2)
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
