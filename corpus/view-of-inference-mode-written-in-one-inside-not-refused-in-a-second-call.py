# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 2: eager raises RuntimeError('A view was created in inference mode and its base or another view of its base has been modified inplace in normal mode. Given that this use case is ambiguous and error-prone, it is forbidden. You can '), compiled raises nothing"
# keys.aot_eager = "(exception, forward, later call, missing RuntimeError: A view was created in inference mode and its base or another view of its base has been modified inplace in normal mode)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    with torch.inference_mode():
        a1 = a0.t()
    return (a1,), named(locals())

def f(x0):
    x0.clone()
    with torch.inference_mode():
        x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": None}]
main(__file__)
