# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after backward of call 2: eager raises RuntimeError('Trying to execute AccumulateGrad node that was poisoned by swap_tensors this can happen when you try to run backward on a tensor that was swapped. For a module m with `torch.__future__.set_swap_module'), compiled raises nothing"
# keys.aot_function = "(exception, backward, later call, missing RuntimeError: Trying to execute AccumulateGrad node that was poisoned by swap_tensors this can happen when you try to run backward on ...)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    torch.utils.swap_tensors(x0, x0)
    v0 = x0.clone()
    return v0
CALLS = [{"inputs": make_inputs_0}, {"inputs": None, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
