# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3107, reduced"
# issue = "https://github.com/intel/torch-xpu-ops/issues/5126"
# difference = "exception of call after forward of call 1: eager raises IndexError('amax(): Expected reduction dim 0 to have non-zero size.'), compiled raises RuntimeError('reducing over zero-size dimension for reduction operation without identity')"
# keys.aot_function = "(exception, forward, RuntimeError: reducing over zero-size dimension for reduction operation without identity)"
# keys.aot_eager = "(exception, forward, RuntimeError: reducing over zero-size dimension for reduction operation without identity)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (0,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = torch.amax(x0, 0)
    return v0
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
