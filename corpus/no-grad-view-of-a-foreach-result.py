# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 0 --examples 1000, reduced"
# issue = "none found"
# difference = "requires-grad of output after forward of call 1: eager True, compiled False"
# keys.aot_function = "(requires-grad, output)"
# keys.aot_eager = "(requires-grad, output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([1, 2], torch.complex64, device)
    a2 = strided(s1, torch.complex64, (), (), 0, requires_grad=True)
    a3 = a2.conj()
    return (a3,), named(locals())

def f(x3):
    v8, v9, v10 = torch._foreach_mul([x3, x3, x3], 2)
    with torch.no_grad():
        v11 = v8.t()
    return v11
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
