# /// aotcheck
# format = 2
# found = "aotcheck fuzz --backend aot_eager --device cpu --seed 3201 --strategy strategies:programs"
# issue = "not looked up"
# difference = "exception of call after backward of call 3: eager raises nothing, compiled raises RuntimeError('')"
# keys.aot_function = "(exception, backward, later call, RuntimeError: During the backward, we encountered a tensor subclass where we guessed its)"
# keys.aot_eager = "(exception, backward, later call, RuntimeError: During the backward, we encountered a tensor subclass where we guessed its)"
# expect.aot_function."2.13.0" = "differs"
# expect.aot_eager."2.13.0" = "differs"
# ///
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2], torch.float64, device)
    a0 = strided(s0, torch.float64, (4, 4, 2), (8, 2, 1), 0, requires_grad=True)
    a1 = wrapped.tagged(a0)
    a1.requires_grad_()
    return ({"k0": a1},), named(locals())
def make_inputs_1(device):
    s0 = storage([1, -2, 0, 2, -1, 1, -2, 0, 2, -1, 1, -2, 0, 2, -1, 1, -2, 0, 2, -1, 1, -2, 0, 2, -1, 1, -2, 0, 2, -1, 1, -2], torch.float64, device)
    a0 = strided(s0, torch.float64, (4, 4, 2), (8, 2, 1), 0, requires_grad=True)
    a1 = wrapped.tagged(a0)
    a1.requires_grad_()
    return ({"k0": a1},), named(locals())
def make_inputs_2(device):
    s0 = storage([1, -1, 2, 0, -2, 1, -1, 2, 0, -2, 1, -1, 2, 0, -2, 1, -1, 2, 0, -2, 1, -1, 2, 0, -2, 1, -1, 2, 0, -2, 1, -1], torch.float64, device)
    a0 = strided(s0, torch.float64, (4, 4, 2), (8, 2, 1), 0, requires_grad=True)
    a1 = wrapped.tagged(a0)
    a1.requires_grad_()
    return ({"k0": a1},), named(locals())

def f(x0):
    v0 = x0["k0"]
    v1 = torch.tensor([[[0, 0], [0, 0], [0, 0], [0, 0]], [[0, 0], [0, 0], [0, 0], [0, 0]], [[0, 0], [0, 0], [0, 0], [0, 0]], [[0, 0], [0, 0], [0, 0], [0, 0]]], device=v0.device)
    v2 = torch.gather(v0, 2, v1)
    v3 = torch.clamp(v2, -1, 1)
    return (v3, v2, v1)
CALLS = [
    {"inputs": make_inputs_0},
    {"inputs": make_inputs_1, "steps": (
        {"do": "backward", "roots": (1,), "cotangents": (("pattern", 1),), "inputs": (0,), "graph": "retained", "calls_ago": 1},
    )},
    {"inputs": make_inputs_2, "steps": (
        {"do": "backward", "roots": (0, 1, 2), "cotangents": (("trained", 2), ("implicit", 0), ("trained", 2)), "way": "grad", "inputs": (0,), "graph": "retained"},
        {"do": "probe", "site": "output", "index": 0, "seed": 4},
        {"do": "backward", "roots": (0,), "cotangents": (("pattern", 3),), "graph": "retained", "calls_ago": 2},
    )},
]
main(__file__)
