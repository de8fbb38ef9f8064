# /// aotcheck
# format = 2
# found = "aotcheck zoo --backend aot_eager, noise_behind_a_transposed_convolution, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/148061"
# difference = "values of output after forward of call 1: eager 1.0 at [0, 0, 0, 1] (16 of 32 elements differ), compiled 0.0"
# note = "the meta function predicts another memory layout than the kernel gives, so elements get other random numbers"
# keys.aot_function = "(values, output)"
# keys.aot_eager = "(values, output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3, -1, 2, 1, 0, 1], torch.float32, device)
    s1 = storage([1, 2, 3, -1, 2, 1, 0, 1, 1, 1, 2, 1, -1, 0, 1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 2, 2, 2), (8, 1, 4, 2), 0)
    a1 = strided(s1, torch.float32, (2, 2, 2, 2), (8, 4, 2, 1), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = torch.nn.functional.conv_transpose2d(x0, x1, stride=2)
    v1 = torch.empty_like(v0)
    v1.bernoulli_()
    v2 = v1.contiguous()
    return v2
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
