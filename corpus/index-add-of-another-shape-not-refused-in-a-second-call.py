# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/121135"
# difference = "exception of call after forward of call 2: eager raises RuntimeError('source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = [] source.shape = [3, 1, 1]'), compiled raises nothing"
# keys.aot_eager = "(exception, forward, later call, missing RuntimeError: source tensor shape must match self tensor shape, excluding the specified dimension)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1, 1), (1, 1, 1), 0)
    return (a0,), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.tensor([0, 0, 0])
    v1 = torch.ones((3, 1, 1))
    torch.index_add(x0, 0, v0, v1)
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
