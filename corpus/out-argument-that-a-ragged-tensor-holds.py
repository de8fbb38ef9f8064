# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "shape of a0 after forward of call 1: eager (1,), compiled (2,)"
# keys.aot_function = "(shape, input)"
# keys.aot_eager = "(exception, forward, RuntimeError: tried to directly modify sizes for customized tensor)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    wrapped.jagged(a0)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.ones(())
    torch.stack([v0], out=x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
