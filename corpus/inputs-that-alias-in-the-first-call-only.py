# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 0 --examples 1000, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/139789"
# difference = "values of a0 after forward of call 2: eager 1.0 at [1] (7 of 8 elements differ), compiled 2.0"
# keys.aot_eager = "(values, input, later call)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3, 4, 5, 6, 7, 8], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 1, 2, 2), (4, 4, 2, 1), 0)
    a1 = a0.view((8,))
    return (a0, a1, True), named(locals())
def make_inputs_1(device):
    s0 = storage([1, 2, 3, 4, 5, 6, 7, 8], torch.float32, device)
    s1 = storage([1, 2, 3, 4, 5, 6, 7, 8], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 1, 2, 2), (4, 4, 2, 1), 0)
    a1 = strided(s1, torch.float32, (8,), (1,), 0)
    return (a0, a1, True), named(locals())

def f(x0, x1, x2):
    x1.view(torch.int32)
    x0.sign_()
    return x2
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
