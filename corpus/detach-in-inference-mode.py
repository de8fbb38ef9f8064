# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/pull/181106"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Cannot set version_counter for inference tensor')"
# note = "aot_eager leaves modes of dispatch switched, which breaks later programs; so does a write to `aten.alias` there"
# alone = ["aot_eager"]
# keys.aot_function = "(exception, forward, RuntimeError: Cannot set version_counter for inference tensor)"
# keys.aot_eager = "(exception, forward, RuntimeError: Cannot set version_counter for inference tensor)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    with torch.inference_mode():
        x0.detach()
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
