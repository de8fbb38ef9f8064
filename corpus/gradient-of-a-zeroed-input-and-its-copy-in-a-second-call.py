# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "values of result[1] after grad of call 2: eager 2.0 at [], compiled 1.0"
# keys.aot_function = "(values, result after grad, later call)"
# keys.aot_eager = "(values, result after grad, later call)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    x0.zero_()
    v2 = x0.clone()
    return (v2, x0)
CALLS = [{"inputs": make_inputs_0}, {"inputs": None, "steps": ({"do": "backward", "roots": (0, 1), "way": "grad"},)}]
main(__file__)
