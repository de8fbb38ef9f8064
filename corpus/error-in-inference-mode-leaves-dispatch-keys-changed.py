# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "https://github.com/pytorch/pytorch/pull/181106"
# difference = "global-state of process after forward of call 1: eager changes nothing, compiled autograd_flags: (False, True) -> (False, False); dispatch_keys: ('DispatchKeySet(BackendSelect, ADInplaceOrView)', 'DispatchKeySet(AutocastCPU, AutocastMTIA, AutocastMAIA, AutocastXPU, AutocastIPU, AutocastHPU, AutocastXLA, AutocastMPS, AutocastCUDA, AutocastPrivateUse1)') -> ('DispatchKeySet(BackendSelect, ADInplaceOrView, PythonDispatcher)', 'DispatchKeySet(Functionalize, AutocastCPU, AutocastMTIA, AutocastMAIA, AutocastXPU, AutocastIPU, AutocastHPU, AutocastXLA, AutocastMPS, AutocastCUDA, AutocastPrivateUse1)')"
# note = "a ragged tensor made in inference mode, which eager refuses too, leaves one of autograd's flags off in aot_eager"
# alone = ["aot_eager"]
# keys.aot_eager = "(global-state, process, both raise, autograd_flags, dispatch_keys)"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([3, 4, 0, 1], torch.complex128, device)
    a1 = strided(s0, torch.complex128, (2, 1), (1, 1), 0)
    return (a1,), named(locals())

def f(x1):
    v0 = torch.ones((1,), dtype=torch.complex128, device=x1.device)
    v1 = x1.view((-1,))
    with torch.inference_mode():
        v3 = v1.detach()
        v4 = torch.tensor([1, 0], device=x1.device)
        v1.scatter_(0, v4, v1)
    return None
CALLS = [{"inputs": make_inputs_0}]
main(__file__)
