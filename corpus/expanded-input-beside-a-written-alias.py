# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/198095"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('The expanded size of the tensor (4) must match the existing size (12) at non-singleton dimension 0.  Target sizes: [4].  Tensor sizes: [12]')"
# keys.aot_function = "(exception, forward, RuntimeError: The expanded size of the tensor [N] must match the existing size [N] at non-singleton dimension N)"
# keys.aot_eager = "(exception, forward, RuntimeError: The expanded size of the tensor [N] must match the existing size [N] at non-singleton dimension N)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (4,), (1,), 0)
    a1 = strided(s0, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x1.zero_()
    v0 = torch.broadcast_to(x0, (4,))
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
