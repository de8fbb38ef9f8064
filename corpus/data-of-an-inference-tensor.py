# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3101, reduced"
# issue = "none found"
# difference = "inference of a1 after forward of call 1: eager False, compiled True"
# keys.aot_function = "(inference, input)"
# keys.aot_eager = "(exception, forward, RuntimeError: Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone to get a normal tensor ...)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    with torch.inference_mode():
        a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    v0 = x0.clone()
    x0.data = v0
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
