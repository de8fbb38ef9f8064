# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/133512"
# difference = "stride of output after forward of call 2: eager (1, 2), compiled (3, 1)"
# keys.aot_eager = "(stride, output, later call)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 2, 1, 3), (6, 3, 3, 1), 0)
    return (a0,), named(locals())
def make_inputs_1(device):
    s0 = storage([0, 0, 0, 0, 0, 0], torch.int64, device)
    a0 = strided(s0, torch.int64, (1, 2, 1, 3), (1, 1, 2, 2), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.sin(x0)
    v1 = torch.tensor([0, 0, 0])
    v2 = torch.ones((1, 2, 3, 3))
    v3 = v0.index_add_(2, v1, v2)
    return v0
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
