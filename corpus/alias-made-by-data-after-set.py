# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after forward of call 1: eager raises nothing, compiled raises RuntimeError('Attempted to set the storage of a tensor on device \u0022meta\u0022 to a storage on different device \u0022cpu\u0022.  This is no longer allowed; the devices must match.')"
# keys.aot_function = "(exception, forward, RuntimeError: Attempted to set the storage of a tensor on device 'X' to a storage on different device 'X')"
# keys.aot_eager = "(aliasing, input-input vs none)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0, 1, 0, 1, 0, 1], torch.bool, device)
    s1 = storage([2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2], torch.float32, device)
    a0 = strided(s0, torch.bool, (3, 2, 1, 1), (2, 1, 1, 1), 0)
    a1 = strided(s1, torch.float32, (4,), (2,), 0, requires_grad=True)
    a2 = strided(s1, torch.float32, (4,), (2,), 1)
    a1m = torch.mul(a1, 1)
    return (a0, a1m, a2), named(locals())

def f(x0, x1, x2):
    x1.set_()
    with torch.no_grad():
        v0 = torch.ones((3, 4), dtype=torch.float32, device=x0.device)
        v1 = torch.nn.functional.linear(x2, v0)
        v2 = v1.untyped_storage()
        v1.set_(v2, 1, (), ())
    v3 = x2.untyped_storage()
    x2.set_(v3)
    with torch.no_grad():
        torch._foreach_abs_([v1, x2])
        v4 = torch.tensor([10, 11], device=x0.device)
        v5 = torch.ones((2,), dtype=torch.float32, device=x0.device)
        x2.index_copy_(0, v4, v5)
        with torch.no_grad():
            x1.data = x2
    return (v5, x2, x2)
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
