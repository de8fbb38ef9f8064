# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_function --device cpu --seed 3103, reduced"
# issue = "none found"
# difference = "exception of call after probe of call 1: eager raises nothing, compiled raises RuntimeError('A view was created in inference mode and is being modified inplace in normal mode. Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the ')"
# keys.aot_function = "(exception, probe, RuntimeError: A view was created in inference mode and is being modified inplace in normal mode)"
# keys.aot_eager = "(exception, forward, RuntimeError: A view was created in inference mode and its base or another view of its base has been modified inplace in normal mode)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([], torch.float32, device)
    a0 = strided(s0, torch.float32, (3, 0), (1, 1), 0, requires_grad=True)
    with torch.inference_mode():
        a1 = a0.unsqueeze(0)
    return (a0, [a1]), named(locals())

def f(x0, x1):
    v0 = x1[0]
    torch.ops.inductor.resize_storage_bytes_.default(v0, 0)
    with torch.no_grad():
        v0.fill_(1)
    v1 = torch.neg(x0)
    x1.insert(0, v1)
    return x0
CALLS = [{"inputs": make_inputs_0, "steps": ({"do": "probe", "site": "input", "index": 1, "seed": 2, "how": "grad"},)}]
main(__file__)
