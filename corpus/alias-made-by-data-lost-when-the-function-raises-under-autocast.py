# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "aliasing of a1 after forward of call 1: eager shares storage with a0, compiled shares storage with nothing before it"
# keys.aot_function = "(aliasing, input-input vs none, both raise)"
# keys.aot_eager = "(aliasing, input-input vs none, both raise)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 1], torch.float32, device)
    s1 = storage([1, -2], torch.float32, device)
    s2 = storage([1, 2, 3, 4], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    a3 = strided(s1, torch.float32, (2,), (1,), 0, requires_grad=True)
    a5 = strided(s2, torch.float32, (4,), (1,), 0, requires_grad=True)
    with torch.inference_mode():
        a1 = a0.clone()
    a2 = a1.unsqueeze(0)
    a4 = torch.ops.aten.alias.default(a3)
    a3.untyped_storage().resize_(0)
    a6 = a5.clone()
    a7 = a6.as_strided((4,), (1,))
    a8 = a6.detach()
    return (a0, a1, a2, a3, a4, True), named(locals())

def f(x0, x1, x2, x3, x4, x5):
    with torch.autocast('cpu', torch.bfloat16):
        x1.data = x0
        v0 = torch.ones((7, 7), device=x0.device)
        torch.mm(x2, v0)
    return (v0, x0, v0, 1)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
