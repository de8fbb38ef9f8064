# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('expand(torch.FloatTensor{[2, 2]}, size=[4]): the number of sizes provided (1) must be greater or equal to the number of dimensions in the tensor (2)')"
# keys.aot_eager = "(exception, forward, RuntimeError: expand(torch.Tensor{[N]}, size=[N]): the number of sizes provided [N] must be greater or equal to the number of ...)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 2), (2, 1), 0)
    a1 = a0.view((4,))
    return (a1, a0), named(locals())

def f(x0, x1):
    v0 = x0.expand((4,))
    x0.zero_()
    x1.clone()
    x0.t_()
    v0.clone()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
