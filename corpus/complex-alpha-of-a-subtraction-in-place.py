# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises RuntimeError('unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please clone() the tensor before performing the operation.'), compiled raises ValueError(\u0022alpha argument of type <class 'complex'> cannot be safely cast to type <class 'float'>!\u0022)"
# keys.aot_function = "(exception, forward, ValueError: alpha argument of type <class 'X'> cannot be safely cast to type <class 'X'>!)"
# keys.aot_eager = "(exception, forward, ValueError: alpha argument of type <class 'X'> cannot be safely cast to type <class 'X'>!)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (0,), 0)
    return (a0,), named(locals())

def f(x0):
    x0.sub_(x0, alpha=complex(0.0, 0.0))
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
