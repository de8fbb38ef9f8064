# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/143717"
# difference = "exception of call after forward of call 1: eager raises RuntimeError(\u0022result type Float can't be cast to the desired output type Long\u0022), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: result type T can't be cast to the desired output type T)"
# keys.aot_eager = "(exception, forward, missing RuntimeError: result type T can't be cast to the desired output type T)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.tensor([0])
    v0.mul_(x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
