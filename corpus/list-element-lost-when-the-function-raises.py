# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "none found"
# difference = "structure of output after forward of call 1: eager ; given tuple(a0, a2, list(a0, a0)), compiled ; given tuple(a0, a2, list(a0))"
# keys.aot_eager = "(structure, output, both raise)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    s1 = storage([1, 2], torch.bfloat16, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    a2 = strided(s1, torch.bfloat16, (2,), (1,), 0)
    return (a0, a2, [a0]), named(locals())

def f(x0, x1, x2):
    x2.append(x0)
    v3 = torch.dot(x0, x1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
