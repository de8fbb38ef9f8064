# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError(\u0022result type Float can't be cast to the desired output type Byte\u0022), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: result type T can't be cast to the desired output type T)"
# keys.aot_eager = "(exception, forward, missing RuntimeError: result type T can't be cast to the desired output type T)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.uint8, device)
    s1 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.uint8, (2,), (1,), 0)
    a1 = strided(s1, torch.float32, (2,), (1,), 0)
    return (a0, a1), named(locals())

def f(x0, x1):
    x0.addcmul_(x0, x1, value=-1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
