# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 3 --strategy strategies:programs"
# issue = "not looked up"
# difference = "leafness of output after forward of call 1: eager True, compiled False"
# keys.aotcheck = "(leafness, output)"
# keys.aot_function = "(requires-grad, input)"
# expect.aotcheck."2.13.0" = "differs"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = ReturnsInput.apply(a0)
    return (a0, a1), named(locals())

def f(x0, x1):
    v0 = x1.t()
    x0.requires_grad_()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
