# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/91468"
# difference = "hook of hook[0] after forward of call 1: eager called 1 times, compiled 0 times"
# keys.aot_function = "(hook, hook)"
# expect.aot_function."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0)
    a1 = strided(s1, torch.float32, (), (), 0, requires_grad=True)
    return (a0, a0, a1), named(locals())

def f(x0, x1, x2):
    torch.autograd.grad([x2], [x2], [x0])
    return None
CALLS = [{"inputs": make_inputs_0, "before": ({"do": "hook", "kind": "watch", "site": "input", "index": 2},)}]
main(__file__)
