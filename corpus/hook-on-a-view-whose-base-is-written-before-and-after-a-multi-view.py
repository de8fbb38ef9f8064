# /// aotcheck
# format = 2
# found = "by hand"
# issue = "not looked up"
# difference = "leafness of output[0] after forward of call 1: eager refused, compiled False"
# keys.aotcheck = "(leafness, output)"
# keys.aot_function = "(exception, forward, RuntimeError: Output N of X is a view and its base or another view of its base has been modified inplace)"
# keys.aot_eager = "(exception, forward, RuntimeError: Output N of X is a view and its base or another view of its base has been modified inplace)"
# expect.aotcheck."2.13.0" = "differs"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0, requires_grad=True)
    a1 = a0.clone()
    a2 = a1.t()
    return (a1, a2), named(locals())

def f(x0, x1):
    x0.zero_()
    v0 = torch.chunk(x1, 1)
    x0.zero_()
    return v0
CALLS = [{"inputs": make_inputs_0, "before": ({"do": "hook", "kind": "watch", "site": "input", "index": 1},)}]
main(__file__)
