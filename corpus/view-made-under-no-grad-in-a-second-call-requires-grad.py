# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3201 --strategy strategies:programs"
# issue = "none found"
# difference = "exception of call after backward of call 2: eager raises RuntimeError('element 0 of tensors does not require grad and does not have a grad_fn'), compiled raises nothing"
# keys.aot_function = "(exception, backward, later call, missing RuntimeError: element N of tensors does not require grad and does not have a grad_fn)"
# keys.aot_eager = "(leafness, output)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    s2 = storage([0], torch.float32, device)
    a0 = strided(s2, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (), (), 0)
    a2 = strided(s0, torch.float32, (), (), 0)
    a3 = a1.view((1,))
    a4 = wrapped.tagged(a3)
    return (a0, [a2, a4]), named(locals())
def make_inputs_1(device):
    s0 = storage([0], torch.float32, device)
    s1 = storage([0], torch.float32, device)
    s2 = storage([0], torch.float32, device)
    a0 = strided(s2, torch.float32, (), (), 0, requires_grad=True)
    a1 = strided(s1, torch.float32, (), (), 0)
    a2 = strided(s0, torch.float32, (), (), 0)
    a3 = a1.view((1,))
    a4 = wrapped.tagged(a3)
    return (a0, [a2, a4]), named(locals())

def f(x0, x1):
    with torch.no_grad():
        v0 = x0.clone()
        v1 = x0.t()
        x1.insert(0, v0)
    return v1
CALLS = [{"inputs": make_inputs_0}, {"inputs": make_inputs_1, "steps": ({"do": "backward", "roots": (0,)},)}]
main(__file__)
