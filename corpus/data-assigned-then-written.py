# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "none found"
# difference = "values of output after forward of call 2: eager -0.0 at [], compiled 1.0"
# note = "`a.data = b`, then a write to `b`: `a` has the old value"
# keys.aot_function = "(values, output, later call)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1], torch.float32, device)
    s1 = storage([2], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a2 = strided(s1, torch.float32, (), (), 0)
    return (a2,), named(locals())
def make_inputs_1(device):
    s0 = storage([-1], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a2 = strided(s1, torch.float32, (), (), 0)
    return (a2,), named(locals())

def f(x2):
    v3 = torch.ones_like(x2)
    v7 = torch.neg(x2)
    v3.data = v7
    v7.remainder_(3)
    return v3
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
