# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/torchdynamo/issues/1962"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises RuntimeError('one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor []], which is output 0 of Tanh, is at version 1; expected version 0 instead. Hint: th')"
# keys.aot_eager = "(exception, forward, later call, RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.tanh(x0)
    v0.zero_()
    return v0
CALLS = [{"inputs": make_inputs_0, "grad_mode": "no_grad"}, {"inputs": None}]
main(__file__)
