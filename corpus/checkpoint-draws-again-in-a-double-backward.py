# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 31 --strategy forms_stream:wrapped"
# issue = "ours"
# difference = "values of result[0] after double grad of call 1: eager 0.0 at [1] (1 of 2 elements differ), compiled 6.0"
# note = "a checkpoint with `preserve_rng_state=False` draws other numbers, or leaves another generator state"
# keys.aotcheck = "(values, result after double grad)"
# keys.aot_eager = "(rng, process after grad)"
# expect.aotcheck."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 1], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    v0 = Inside.checkpointed_dropout(x0, x0, False)
    return v0
CALLS = [
    {"inputs": make_inputs_0, "steps": (
        {"do": "backward", "roots": (0,), "way": "grad", "graph": "created"},
        {"do": "backward", "roots": (0,), "of": "penalty", "way": "grad"},
    )},
]
main(__file__)
