# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 20262502 --strategy strategies:backwards"
# issue = "not looked up"
# difference = "shape of a2 after forward of call 1: eager (), compiled (1,)"
# keys.aot_function = "(shape, input)"
# keys.aot_eager = "(exception, forward, RuntimeError: Function X returned an invalid gradient at index N - got [N] but expected shape compatible with [N])"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0)
    with torch.no_grad():
        a2 = a0.view((1,))
    a2.requires_grad_()
    return (a1, a2), named(locals())

def f(x0, x1):
    x1.data = x0
    v0 = Composed.apply(x1, x0, "sum", "second", "view", "late", False)
    return (x1, v0)
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
