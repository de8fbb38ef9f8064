# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 1: eager raises RuntimeError(\u0022Expected no weakrefs to t1's Tensor object but got  1\u0022), compiled raises nothing"
# keys.aot_function = "(exception, forward, missing RuntimeError: Expected no weakrefs to tN's Tensor object but got N)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    torch.utils.swap_tensors(x0, x0)
    return None
CALLS = [{"inputs": make_inputs_0, "before": ({"do": "hook", "kind": "retain", "site": "input", "index": 0},)}]
main(__file__)
