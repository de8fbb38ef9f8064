# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor.')"
# keys.aot_function = "(exception, forward, RuntimeError: tensor.adjoint() is only supported on matrices or batches of matrices)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    torch.stack([x0], out=v0)
    torch.adjoint(v0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
