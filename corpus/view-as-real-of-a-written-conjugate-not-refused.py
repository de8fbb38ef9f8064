# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError(\u0022view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so you can view it as real, use self.resolve_conj(); however, be warned that the resulting tensor will NOT \u0022), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: view_as_real doesn't work on unresolved conjugated tensors)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.complex64, device)
    a0 = strided(s0, torch.complex64, (), (), 0)
    a1 = a0.conj()
    return (a1,), named(locals())

def f(x0):
    x0.zero_()
    torch.view_as_real(x0)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
