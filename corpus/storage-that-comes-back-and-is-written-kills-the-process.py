# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "crash of the process: killed by SIGSEGV"
# note = "an input's storage is freed, made large again and written: segmentation fault"
# alone = ["aot_function"]
# keys.aot_function = "(crash, process, killed by SIGSEGV)"
# keys.aot_eager = "(storage-size, input, both raise)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([2, -2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a0.untyped_storage().resize_(0)
    return (a0,), named(locals())

def f(x0):
    torch.ops.inductor.resize_storage_bytes_.default(x0, 8)
    x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
