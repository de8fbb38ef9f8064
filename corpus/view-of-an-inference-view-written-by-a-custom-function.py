# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Output 0 of T is a view of a view which was created in inference mode and is being modified inplace in normal mode. Given that this use case is ambiguous and error-prone, it is forbidden. You can clar')"
# keys.aot_function = "(exception, forward, RuntimeError: Output N of X is a view of a view which was created in inference mode and is being modified inplace in normal mode)"
# keys.aot_eager = "(exception, forward, RuntimeError: Output N of X is a view of a view which was created in inference mode and its base or another view of its base has been ...)"
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
    a2 = a1.t()
    return (a2,), named(locals())

def f(x0):
    WritesUnmarked.apply(x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
