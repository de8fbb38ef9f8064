# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 16 --strategy forms_stream:forms"
# issue = "ours"
# difference = "exception of call after grad of call 1: eager raises nothing, compiled raises RuntimeError('Trying to backward an extra time. You are only allowed to backward once on any region computed under selective activation checkpoint.')"
# keys.aotcheck = "(exception, grad, RuntimeError: Trying to backward an extra time)"
# keys.aot_function = "(exception, forward, TypeError: 'X' not supported between instances of 'X' and 'X')"
# keys.aot_eager = "(exception, forward, NotImplementedError: checkpoint not implemented for <class 'X'> context_fn)"
# expect.aotcheck = {}
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = Inside.checkpointed_selectively(x0, x0)
    return v0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,), "way": "grad", "graph": "created"},)}]
main(__file__)
