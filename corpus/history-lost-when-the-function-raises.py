# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "leafness of a1 after forward of call 1: eager refused, compiled False"
# keys.aot_function = "(leafness, input, both raise)"
# keys.aot_eager = "(leafness, input, both raise)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = ReturnsInput.apply(a0)
    return (a1,), named(locals())

def f(x0):
    with torch.no_grad():
        x0.zero_()
        v0 = x0.clone()
    v1 = torch.ones((0,))
    torch.add(v0, v1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
