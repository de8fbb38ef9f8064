# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3104, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/198095"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of dimensions i.e. input.dim() = 1 is not equal to len(dims) = 2')"
# keys.aot_function = "(exception, forward, RuntimeError: permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of ...)"
# keys.aot_eager = "(exception, forward, RuntimeError: permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2], torch.float32, device)
    a1 = strided(s1, torch.float32, (4,), (1,), 0)
    a2 = strided(s1, torch.float32, (4,), (1,), 2)
    a3 = strided(s1, torch.float32, (2, 2), (1, 2), 0)
    return (a1, a2, a3), named(locals())

def f(x1, x2, x3):
    x2.zero_()
    v5 = torch.movedim(x3, 0, 1)
    return (v5, x3)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
