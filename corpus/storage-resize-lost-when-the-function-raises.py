# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "storage-size of a0 after forward of call 1: eager 0, compiled 4"
# keys.aot_function = "(storage-size, input, both raise)"
# keys.aot_eager = "(storage-size, input, both raise)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (1,), (1,), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    torch.ops.inductor.resize_storage_bytes_.default(x0, 0)
    x1.narrow(0, 0, 2)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
