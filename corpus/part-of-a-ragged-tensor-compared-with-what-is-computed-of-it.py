# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 20262503 --strategy strategies:mixed"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('self.shape_env must not be None')"
# keys.aot_function = "(exception, forward, AssertionError: self.shape_env must not be None)"
# keys.aot_eager = "(exception, forward, torch._subclasses.fake_tensor.DataDependentOutputException: aten._local_scalar_dense.default)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1, 1), (1, 1, 1), 0)
    a1 = wrapped.jagged(a0)
    a0.requires_grad_()
    a2 = a1.unsqueeze(-1)
    return (a2,), named(locals())

def f(x0):
    v0, v1 = torch.chunk(x0, 2)
    v2 = torch.nn.functional.dropout(v1)
    return (x0, v2, v1)
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0, 2), "way": "grad"},)}]
main(__file__)
