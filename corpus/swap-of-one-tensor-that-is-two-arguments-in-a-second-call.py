# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/186796"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises RuntimeError('Cannot swap t1 because it has weakref associated with it')"
# keys.aot_eager = "(exception, forward, later call, RuntimeError: Cannot swap tN because it has weakref associated with it)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s1, torch.float32, (1, 1), (1, 1), 0)
    a1 = strided(s0, torch.float32, (), (), 0)
    return (a1, a0, a0), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s1, torch.float32, (1, 1), (1, 1), 0)
    a1 = strided(s0, torch.float32, (), (), 0)
    return (a1, a1, a0), named(locals())

def f(x0, x1, x2):
    v0 = torch.tensor([0])
    Module.embedding(v0, x2)
    x1.clone()
    torch.utils.swap_tensors(x0, x0)
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
