# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 5 --strategy narrow:under"
# issue = "ours"
# difference = "shape of output after forward of call 2: eager (), compiled (1,)"
# keys.aotcheck = "(shape, output, later call)"
# keys.aot_function = "(shape, input)"
# keys.aot_eager = "(shape, input)"
# expect.aotcheck."2.13.0" = "differs"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.view((1,))
    x0.data = v0
    v1, v2 = torch.autograd.grad([x0], [x0, x0], [x0])
    return v1
CALLS = [{"inputs": make_inputs_0}, {"inputs": None}]
main(__file__)
