# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "storage-offset of a1 after forward of call 1: eager 0, compiled 1"
# keys.aot_function = "(storage-offset, input, both raise)"
# keys.aot_eager = "(storage-offset, input, both raise)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s0, torch.float32, (), (), 1)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = torch.tensor([])
    x1.data = x0
    v0.as_strided((1,), (0,))
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
