# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises RuntimeError(\u0022result type ComplexFloat can't be cast to the desired output type Float\u0022), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: result type T can't be cast to the desired output type T)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    torch.mul(x0, complex(0.0, 0.0), out=x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
