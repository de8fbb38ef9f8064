# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "values of output after forward of call 2: eager 1.0 at [], compiled 0.0"
# note = "inputs shared memory in the first call; in the second, a write to one shows in a copy of the other"
# keys.aot_eager = "(values, output, later call)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s0, torch.float32, (), (), 0)
    return (a0, a1), named(locals())
def make_inputs_1(device):
    s0 = storage([1], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x1.zero_()
    v0 = x0.clone()
    return v0
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
