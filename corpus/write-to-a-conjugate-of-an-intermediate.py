# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError(\u0022view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so you can view it as real, use self.resolve_conj(); however, be warned that the resulting tensor will NOT \u0022)"
# keys.aot_function = "(exception, forward, RuntimeError: view_as_real doesn't work on unresolved conjugated tensors)"
# keys.aot_eager = "(exception, forward, RuntimeError: view_as_real doesn't work on unresolved conjugated tensors)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a0.requires_grad_()
    return (a0,), named(locals())

def f(x0):
    v0 = torch.complex(x0, x0)
    v1 = v0.conj()
    v1.zero_()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
