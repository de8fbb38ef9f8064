# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/pull/181106"
# difference = "global-state of process after forward of call 1: eager changes nothing, compiled dispatch_keys: ('DispatchKeySet(BackendSelect)', 'DispatchKeySet(AutogradOther, AutogradNestedTensor, AutocastCPU, AutocastMTIA, AutocastMAIA, AutocastXPU, AutocastIPU, AutocastHPU, AutocastXLA, AutocastMPS, AutocastCUDA, AutocastPrivateUse1)') -> ('DispatchKeySet(BackendSelect, ADInplaceOrView, PythonDispatcher)', 'DispatchKeySet(Functionalize, AutocastCPU, AutocastMTIA, AutocastMAIA, AutocastXPU, AutocastIPU, AutocastHPU, AutocastXLA, AutocastMPS, AutocastCUDA, AutocastPrivateUse1)'); inference_mode: True -> False"
# keys.aot_eager = "(global-state, process, both raise, dispatch_keys, inference_mode)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([0], torch.int64, device)
    a0 = strided(s0, torch.int64, (), (), 0)
    return (a0,), named(locals())

def f(x0):
    with torch.inference_mode():
        x0.detach()
    x0.requires_grad_()
    return None
CALLS = [{"inputs": make_inputs_0, "grad_mode": "inference"}]
main(__file__)
