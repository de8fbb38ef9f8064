# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('a view of a leaf Variable that requires grad is being used in an in-place operation.'), compiled raises AssertionError('any_leaf=True != all_leaf=False for outer_indices=[0, 1]')"
# keys.aot_function = "(exception, forward, AssertionError: any_leaf=True != all_leaf=False for outer_indices=[N])"
# keys.aot_eager = "(exception, forward, later call, AssertionError: any_leaf=True != all_leaf=False for outer_indices=[N])"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.t()
    return (a1, a0), named(locals())

def f(x0, x1):
    x1.clone()
    x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": None, "grad_mode": "no_grad"}]
main(__file__)
