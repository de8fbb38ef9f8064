# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "rng of process after forward of call 2: eager leaves the generator in one state, compiled in another"
# keys.aot_eager = "(rng, process, both raise, later call)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    return (a0,), named(locals())

def f(x0):
    with torch.no_grad():
        v0 = x0.t()
        x0.zero_()
    v1 = torch.nn.functional.dropout(x0)
    v0.clone()
    return v1
CALLS = [{"inputs": make_inputs_0, "grad_mode": "no_grad"}, {"inputs": None}]
main(__file__)
