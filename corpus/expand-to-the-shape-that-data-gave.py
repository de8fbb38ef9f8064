# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "shape of a1 after forward of call 1: eager (1,), compiled ()"
# keys.aot_function = "(shape, input)"
# keys.aot_eager = "(exception, forward, RuntimeError: expand: the requested shape has too few dimensions!)"
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
    x0.expand_as(x1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
