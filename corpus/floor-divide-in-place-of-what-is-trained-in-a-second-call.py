# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/148856"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises RuntimeError('derivative for aten::floor_divide_ is not implemented')"
# keys.aot_eager = "(exception, forward, later call, RuntimeError: derivative for aten::X is not implemented)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    x0.floor_divide_(1)
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
