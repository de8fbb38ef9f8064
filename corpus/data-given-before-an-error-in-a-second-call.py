# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "aliasing of a1 after forward of call 2: eager shares storage with a0, compiled shares storage with nothing before it"
# keys.aot_eager = "(aliasing, input-input vs none, both raise, later call)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0, a0), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.data = x1
    v0 = x0.t()
    v0.detach_()
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
