# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/issues/118648"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError(\u0022shape '[3]' is invalid for input of size 1\u0022)"
# keys.aot_function = "(exception, forward, RuntimeError: shape 'X' is invalid for input of size N)"
# keys.aot_eager = "(exception, forward, RuntimeError: Given normalized_shape=[N], expected input with shape [N], but got input of size torch.Size([N]))"
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
    v0 = torch.ones((3,))
    v1, v2 = Composed.apply(v0, x0, "sum", "second", "input", "nothing", False)
    torch.stack([x0], out=v0)
    torch.nn.functional.layer_norm(v2, (3,))
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
