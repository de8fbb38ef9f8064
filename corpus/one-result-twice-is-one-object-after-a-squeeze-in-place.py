# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/114344"
# difference = "identity of output[2] after forward of call 1: eager is the same object as nothing before it, compiled is the same object as output[0]"
# keys.aot_eager = "(identity, none vs output-output)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2, 3], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 3), (3, 1), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0, v1 = torch.topk(x0, 1)
    v5, v6 = torch.topk(x0, 1)
    v0.squeeze_((0, 1))
    return [v6, v5, v1, v0]
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
