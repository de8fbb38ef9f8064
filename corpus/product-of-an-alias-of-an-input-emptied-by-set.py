# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('matrix @ vector expected, got 1, 1')"
# keys.aot_function = "(exception, forward, RuntimeError: matrix @ vector expected, got N, N)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1), (1, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.detach()
    x0.set_()
    v1 = torch.ones((1,))
    torch.mv(v0, v1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
