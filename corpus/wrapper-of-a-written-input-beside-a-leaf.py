# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/114415"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AssertionError('input_info mismatch at inner_idx=2, outer_idx=2: InputAliasInfo(is_leaf=True, mutates_data=True, mutates_metadata=False, mutations_hidden_from_autograd=False, mutations_under_no_grad_or_inference_mode')"
# keys.aot_function = "(exception, forward, AssertionError: input_info mismatch at inner_idx=N, outer_idx=N: InputAliasInfo(...))"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (), (), 0)
    a2 = wrapped.tagged(a1)
    return (a0, a2, a1), named(locals())

def f(x0, x1, x2):
    x1.zero_()
    v0 = x0.clone()
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
