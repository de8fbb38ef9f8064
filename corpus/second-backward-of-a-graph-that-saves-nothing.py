# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 31 --examples 2500, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/118739"
# difference = "exception of call after backward 2 of call 1: eager raises nothing, compiled raises RuntimeError('Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved intermediate values of the graph are freed when you call .backward() or ')"
# keys.aot_function = "(exception, backward, RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed))"
# keys.aot_eager = "(exception, backward, RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed))"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    a1 = a0.clone()
    return (a1,), named(locals())

def f(x0):
    x0.zero_()
    return x0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)}, {"do": "backward", "roots": (0,)})}]
main(__file__)
