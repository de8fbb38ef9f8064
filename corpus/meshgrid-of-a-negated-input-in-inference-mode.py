# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3106, reduced"
# issue = "none found"
# difference = "aliasing of output after forward of call 1: eager shares storage with nothing before it, compiled shares storage with a5"
# keys.aot_eager = "(aliasing, none vs output-input)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([1, 2, 3, 4], torch.complex64, device)
    a5 = strided(s1, torch.complex64, (1,), (1,), 0)
    a7 = a5.conj()
    a8 = a7.imag
    return (a8,), named(locals())

def f(x0):
    v1, = torch.meshgrid(x0, indexing="ij")
    return v1
CALLS = [{"inputs": make_inputs_0, "grad_mode": "inference"}]
main(__file__)
