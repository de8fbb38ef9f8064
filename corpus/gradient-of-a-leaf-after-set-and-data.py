# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 3 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after grad of call 1: eager raises RuntimeError('invalid gradient at index 0 - got [] but expected shape compatible with [1]'), compiled raises nothing"
# keys.aotcheck = "(exception, grad, missing RuntimeError: invalid gradient at index N - got [N] but expected shape compatible with [N])"
# keys.aot_function = "(exception, forward, RuntimeError: Attempted to set the storage of a tensor on device 'X' to a storage on different device 'X')"
# keys.aot_eager = "(exception, forward, RuntimeError: cannot mutate tensors with frozen storage)"
# expect.aotcheck."2.13.0" = "differs"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    with torch.no_grad():
        x0.set_(x0, 0, (1,))
    v0 = x0[0]
    x0.data = v0
    with torch.no_grad():
        x0.zero_()
    return (x0, v0)
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
