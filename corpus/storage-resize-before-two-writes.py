# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101"
# issue = "none found"
# difference = "storage-size of a1 after forward of call 1: eager 8, compiled 4"
# keys.aot_function = "(storage-size, input)"
# keys.aot_eager = "(storage-size, input)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a2 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1, a2), named(locals())

def f(x0, x2):
    torch.ops.inductor.resize_storage_bytes_.default(x0, 8)
    with torch.no_grad():
        x0.zero_()
    x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
