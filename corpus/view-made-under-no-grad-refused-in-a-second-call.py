# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3105, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/113793"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises RuntimeError('A view was created in no_grad mode and its base or another view of its base has been modified inplace with grad mode enabled. Given that this use case is ambiguous and error-prone, it is forbidden. Yo')"
# keys.aot_eager = "(exception, forward, later call, RuntimeError: A view was created in no_grad mode and its base or another view of its base has been modified inplace with grad mode ...)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    with torch.no_grad():
        a2 = a1.as_strided((0,), (0,))
    return (a1, a2), named(locals())

def f(x0, x1):
    x1.detach()
    x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": None}]
main(__file__)
