# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 20262501 --strategy strategies:storages"
# issue = "not looked up"
# difference = "shape of output[1] after forward of call 1: eager (), compiled (1,)"
# note = "after `v.data = w` the view `v` has its old shape"
# keys.aot_function = "(shape, output)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    v0 = x0[0]
    v0.t_()
    v1 = x0.t()
    v1.data = v0
    return (v0, v1)
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (1,), "way": "grad"},)}]
main(__file__)
