# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "leafness of a1 after forward of call 1: eager refused, compiled True"
# keys.aot_function = "(leafness, input)"
# keys.aot_eager = "(exception, forward, RuntimeError: Output N of X is a view of a view which was created in no_grad mode and its base or another view of its base has been ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 2), (2, 1), 0, requires_grad=True)
    with torch.no_grad():
        a1 = a0[0:1]
    return (a0, a1), named(locals())

def f(x0, x1):
    with torch.no_grad():
        v2 = x1.flatten()
        x0.unsqueeze_(0)
        x0.squeeze_(0)
    return v2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
