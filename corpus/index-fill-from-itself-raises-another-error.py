# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. Please clone() the tensor before performing the operation.'), compiled raises IndexError('list assignment index out of range')"
# keys.aot_function = "(exception, forward, IndexError: list assignment index out of range)"
# keys.aot_eager = "(exception, forward, IndexError: list assignment index out of range)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float16, device)
    a0 = strided(s0, torch.float16, (1,), (1,), 0)
    a1 = a0.clone()
    a2 = torch.tensor([0], device=a1.device)
    return (a2,), named(locals())

def f(v3):
    v4 = v3.index_fill_(1, v3, 0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
