# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/90507"
# difference = "leafness of output after probe of call 1: eager False, compiled refused"
# keys.aot_function = "(leafness, output after probe)"
# keys.aot_eager = "(leafness, output after probe)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a0.requires_grad_()
    return (a0,), named(locals())

def f(x0):
    v0 = x0.clone()
    v0.t_()
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "probe", "site": "output", "index": 0, "seed": 1},)}]
main(__file__)
