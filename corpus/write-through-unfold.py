# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 0 --examples 1000, reduced"
# issue = "https://github.com/pytorch/pytorch/issues/165409"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('While executing unfold, functionalization encountered a tensor being mutated that has internal overlap. When using torch.compile (or running functionalization directly), this is banned as the behavior')"
# keys.aot_function = "(exception, forward, RuntimeError: While executing X, functionalization encountered a tensor being mutated that has internal overlap)"
# keys.aot_eager = "(exception, forward, RuntimeError: While executing X, functionalization encountered a tensor being mutated that has internal overlap)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.int32, device)
    a0 = strided(s0, torch.int32, (2,), (1,), 0)
    return (a0,), named(locals())

def f(x0):
    v0 = x0.unfold(0, 2, 1)
    v0.fill_(1)
    return ()
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
