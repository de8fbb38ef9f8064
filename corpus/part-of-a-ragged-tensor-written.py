# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('self.shape_env must not be None')"
# keys.aot_function = "(exception, forward, AssertionError: self.shape_env must not be None)"
# keys.aot_eager = "(exception, forward, NotImplementedError: aten.new_empty_strided.default)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (1, 1), (1, 1), 0)
    a1 = wrapped.jagged(a0)
    a0.requires_grad_()
    a2 = a1.clone()
    return (a2,), named(locals())

def f(x0):
    v0, v1, v2 = torch.tensor_split(x0, 3, -1)
    v0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
