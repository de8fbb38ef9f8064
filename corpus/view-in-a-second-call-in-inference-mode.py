# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises RuntimeError('A view was created in inference mode and its base or another view of its base has been modified inplace in normal mode. Given that this use case is ambiguous and error-prone, it is forbidden. You can ')"
# keys.aot_eager = "(exception, forward, later call, RuntimeError: A view was created in inference mode and its base or another view of its base has been modified inplace in normal mode)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.t()
    x0.t_()
    x0.clone()
    return v0
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1, "grad_mode": "inference"}]
main(__file__)
