# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('One of the differentiated Tensors does not require grad')"
# keys.aot_eager = "(exception, forward, RuntimeError: One of the differentiated Tensors does not require grad)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    with torch.no_grad():
        v0 = x0.t()
    v1 = v0.clone()
    torch.autograd.grad([], [v1], allow_unused=True)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
