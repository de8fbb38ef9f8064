# /// aotcheck
# format = 2
# found = "aotcheck zoo --backend aot_eager, selective_checkpoint_whose_body_writes, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/113737"
# difference = "values of a1 after backward of call 1: eager 2.0 at [0] (2 of 2 elements differ), compiled 1.0"
# note = "a write in a selective checkpoint is lost when the body is computed again; aot_function raises"
# keys.aot_function = "(exception, forward, TypeError: 'X' not supported between instances of 'X' and 'X')"
# keys.aot_eager = "(values, input after backward)"
# keys.inductor = "(values, input after backward)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# expect.inductor."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    s1 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (2,), (1,), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = Inside.checkpointed_count(x0, x1)
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
