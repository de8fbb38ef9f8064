# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('A view was created in inference mode and its base or another view of its base has been modified inplace in normal mode. Given that this use case is ambiguous and error-prone, it is forbidden. You can ')"
# keys.aot_function = "(exception, forward, RuntimeError: A view was created in inference mode and its base or another view of its base has been modified inplace in normal mode)"
# keys.aot_eager = "(exception, forward, RuntimeError: A view was created in inference mode and its base or another view of its base has been modified inplace in normal mode)"
# expect.aot_function."2.13.0" = "differs"
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
    v0 = x0.detach()
    v1 = x0.t()
    v0.zero_()
    return v1
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
