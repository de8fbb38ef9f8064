# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "shape of a1 after forward of call 1: eager (1,), compiled ()"
# keys.aot_function = "(shape, input)"
# keys.aot_eager = "(exception, forward, RuntimeError: torch.take_along_dim(): input and indices should have the same number of dimensions, but got N dimensions for input, ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s1, torch.float32, (1,), (1,), 0)
    a1 = strided(s0, torch.float32, (), (), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x1.data = x0
    v0 = torch.tensor([0])
    torch.take_along_dim(x1, v0, 0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
