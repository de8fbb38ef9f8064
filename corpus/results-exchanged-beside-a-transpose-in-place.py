# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "dtype of output[0] after forward of call 1: eager torch.float32, compiled torch.int64"
# note = "two constants that are returned are exchanged, beside an input that is transposed in place"
# keys.aot_eager = "(dtype, output)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    v0 = torch.tensor([0])
    x0.t_()
    v1 = v0.zero_()
    v2 = torch.ones(())
    x0.zero_()
    return (v2, v1)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
