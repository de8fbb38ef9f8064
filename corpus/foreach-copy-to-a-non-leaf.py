# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 62 --examples 2000, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('derivative for _foreach_copy_ is not implemented')"
# keys.aot_function = "(exception, forward, RuntimeError: derivative for _foreach_copy_ is not implemented)"
# keys.aot_eager = "(exception, forward, RuntimeError: derivative for _foreach_copy_ is not implemented)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a0.requires_grad_()
    a1 = a0.clone()
    return (a1, a0), named(locals())

def f(x0, x1):
    torch._foreach_copy_([x0], [x1])
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
