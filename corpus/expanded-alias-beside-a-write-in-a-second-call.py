# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/198095"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises RuntimeError('The expanded size of the tensor (0) must match the existing size (2) at non-singleton dimension 0.  Target sizes: [0].  Tensor sizes: [2]')"
# keys.aot_eager = "(exception, forward, later call, RuntimeError: The expanded size of the tensor [N] must match the existing size [N] at non-singleton dimension N)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0, a0), named(locals())
def make_inputs_1(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    a1 = strided(s0, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = x1.expand((0,))
    x0.zero_()
    return v0
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
