# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after grad of call 2: eager raises nothing, compiled raises RuntimeError(\u0022view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so you can view it as real, use self.resolve_conj(); however, be warned that the resulting tensor will NOT \u0022)"
# keys.aot_function = "(exception, grad, later call, RuntimeError: view_as_real doesn't work on unresolved conjugated tensors)"
# keys.aot_eager = "(exception, grad, later call, RuntimeError: view_as_real doesn't work on unresolved conjugated tensors)"
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
    v0 = torch.complex(x0, x0)
    v1 = v0.conj()
    return v1
CALLS = [{"inputs": make_inputs_0}, {"inputs": None, "steps": ({"do": "backward", "roots": (0,), "way": "grad"},)}]
main(__file__)
