# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after backward of call 1: eager raises RuntimeError('A view was created in inference mode and its base or another view of its base has been modified inplace in normal mode. Given that this use case is ambiguous and error-prone, it is forbidden. You can '), compiled raises nothing"
# note = "aot_function raises nothing where eager's backward raises; under aot_eager the call raises"
# keys.aot_function = "(exception, backward, missing RuntimeError: A view was created in inference mode and its base or another view of its base has been modified inplace in normal mode)"
# keys.aot_eager = "(exception, forward, RuntimeError: A view was created in no_grad mode and its base or another view of its base has been modified inplace with grad mode ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return ({"k0": a0},), named(locals())

def f(x0):
    v0 = x0["k0"]
    v1 = v0.t()
    x0["n"] = v1
    v0.zero_()
    return v1
CALLS = [{"inputs": make_inputs_0, "grad_mode": "inference", "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
