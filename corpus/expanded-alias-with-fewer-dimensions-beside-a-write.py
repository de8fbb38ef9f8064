# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/198095"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('expand(CPUBFloat16Type{[1, 1, 1]}, size=[0, 0]): the number of sizes provided (2) must be greater or equal to the number of dimensions in the tensor (3)')"
# keys.aot_function = "(exception, forward, RuntimeError: expand(T, size=[N]): the number of sizes provided [N] must be greater or equal to the number of dimensions in the ...)"
# keys.aot_eager = "(exception, forward, RuntimeError: expand(T, size=[N]): the number of sizes provided [N] must be greater or equal to the number of dimensions in the ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.bfloat16, device)
    a0 = strided(s0, torch.bfloat16, (1, 1, 1), (1, 1, 1), 0)
    a1 = a0[0]
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.zero_()
    v0 = torch.broadcast_to(x1, (0, 0))
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
