# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError(\u0022output with shape torch.Size([0]) doesn't match the broadcast shape (1, 0)\u0022)"
# keys.aot_function = "(exception, forward, RuntimeError: output with shape torch.Size([N]) doesn't match the broadcast shape [N])"
# keys.aot_eager = "(exception, forward, RuntimeError: output with shape torch.Size([N]) doesn't match the broadcast shape [N])"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1), (1, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    v1 = x0.detach()
    v1.set_()
    x0.add_(v0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
