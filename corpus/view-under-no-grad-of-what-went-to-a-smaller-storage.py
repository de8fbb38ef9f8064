# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aotcheck --device cpu --seed 20262503 --strategy strategies:mixed"
# issue = "not looked up"
# difference = "shape of a1 after forward of call 1: eager (), compiled (2,)"
# keys.aot_function = "(shape, input)"
# keys.aot_eager = "(leafness, input)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 0], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    a1 = a0.clone()
    with torch.no_grad():
        a2 = a1.t()
    return (a1, a2), named(locals())

def f(x0, x1):
    v0 = torch.ones(())
    x0.data = v0
    return None
CALLS = [{"inputs": make_inputs_0}, {"inputs": None}]
main(__file__)
