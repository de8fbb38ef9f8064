# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 32 --examples 1500, reduced"
# issue = "none found"
# difference = "leafness of a1 after forward of call 1: eager refused, compiled True"
# keys.aot_function = "(exception, forward, missing RuntimeError: A view was created in no_grad mode and its base or another view of its base has been modified inplace with grad mode ...)"
# keys.aot_eager = "(leafness, input, both raise)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    with torch.no_grad():
        a1 = a0.t()
    return (a1,), named(locals())

def f(x0):
    with torch.inference_mode():
        x0.zero_()
    x0.clone()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
