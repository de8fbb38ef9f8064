# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after forward of call 2: eager raises nothing, compiled raises RuntimeError('expand: attempting to expand a dimension of length 2 -> 1!')"
# keys.aot_eager = "(exception, forward, later call, RuntimeError: expand: attempting to expand a dimension of length N -> N!)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2, 1), (1, 1), 0)
    return (a0,), named(locals())

def f(x0):
    v0, v1 = torch.broadcast_tensors(x0, x0)
    v0.t_()
    x0.zero_()
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": None, "grad_mode": "no_grad"}]
main(__file__)
