# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/198095"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError(\u0022split_with_sizes expects split_sizes to sum exactly to 5 (input tensor's size at dimension 0), but got split_sizes=[3, 1]\u0022)"
# keys.aot_eager = "(exception, forward, RuntimeError: split_with_sizes expects split_sizes to sum exactly to N (input tensor's size at dimension N), but got split_sizes=[N])"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0, 0, 0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (4,), (1,), 0)
    a1 = strided(s0, torch.float32, (3,), (2,), 0)
    return (a0, {"k0": [a0, a1]}), named(locals())

def f(x0, x1):
    v0 = x1["k0"]
    v1 = v0[1]
    v2, v3 = torch.split(x0, [3, 1])
    v1.zero_()
    x1.update({"k0": v2, "n": x0})
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
