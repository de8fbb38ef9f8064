# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "shape of a1 after forward of call 1: eager (), compiled (1, 1)"
# keys.aot_function = "(shape, input)"
# keys.aot_eager = "(exception, backward, RuntimeError: Function X returned an invalid gradient at index N - got [N] but expected shape compatible with [N])"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1), (1, 1), 0, requires_grad=True)
    a1 = a0.clone()
    a2 = a1.t()
    return (a1, a2), named(locals())

def f(x0, x1):
    v0 = x0.sum()
    x0.data = v0
    return x1
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
