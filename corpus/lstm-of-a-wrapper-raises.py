# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 40 --strategy strategies:realistic"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises AttributeError(\u0022'NoneType' object has no attribute 'shape'\u0022)"
# keys.aot_eager = "(exception, forward, AttributeError: 'X' object has no attribute 'X')"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s1 = storage([2], torch.float32, device)
    a1 = strided(s1, torch.float32, (1, 1), (1, 1), 0)
    w = wrapped.tagged(a1)
    return (w,), named(locals())

def f(x1):
    v2 = torch.ones((1,), dtype=torch.float32, device=x1.device)
    v3, v4, v5 = Module.lstm(x1, x1, v2)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
