# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "values of a2 after forward of call 1: eager 1.0 at [0] (2 of 2 elements differ), compiled -1.0"
# note = "`index_put_` uses the values that its source has after a later write"
# keys.aot_eager = "(values, input)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([1, 2], torch.float32, device)
    s2 = storage([1], torch.float32, device)
    a1 = strided(s1, torch.float32, (2,), (1,), 0, requires_grad=True)
    a4 = strided(s2, torch.float32, (), (), 0)
    a2 = a1.clone()
    return (a2, a4), named(locals())

def f(x1, x3):
    v0 = torch.tensor([0, 1, 0])
    x1.index_put_((v0,), x3)
    x3.neg_()
    return x3
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
