# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/94773"
# difference = "aliasing of argument[1]['n'] after forward of call 1: eager shares storage with a0, compiled shares storage with a1"
# keys.aot_eager = "(aliasing, input-input vs another input-input)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0)
    a2 = a0.detach()
    return (a2, {"k0": a1}), named(locals())

def f(x0, x1):
    v0 = x1["k0"]
    v1 = x0.detach()
    x0.data = v0
    x1.update({"n": v1})
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
