# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "storage-size of a0 after forward of call 2: eager 160, compiled 4"
# keys.aot_eager = "(storage-size, input, later call)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())
def make_inputs_1(device):
    s0 = storage([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1, 1), (1, 1, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v0, v1 = Composed.apply(x0, x0, "sum", "operands", "input", "late", False)
    torch.utils.swap_tensors(v0, v1)
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1}]
main(__file__)
