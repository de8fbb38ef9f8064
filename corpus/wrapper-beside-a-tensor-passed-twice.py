# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/114401"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('input_info mismatch at inner_idx=2, outer_idx=2: InputAliasInfo(is_leaf=True, mutates_data=False, mutates_metadata=False, mutations_hidden_from_autograd=True, mutations_under_no_grad_or_inference_mode')"
# keys.aot_function = "(exception, forward, AssertionError: input_info mismatch at inner_idx=N, outer_idx=N: InputAliasInfo(...))"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    s1 = storage([0], torch.int64, device)
    a0 = strided(s0, torch.float32, (1, 2), (2, 1), 0, requires_grad=True)
    a2 = strided(s1, torch.int64, (1,), (1,), 0)
    a1 = a0.clone()
    a3 = wrapped.constant(a2)
    return (a3, a1, a1), named(locals())

def f(x0, x1, x2):
    v0 = torch.neg(x1)
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
