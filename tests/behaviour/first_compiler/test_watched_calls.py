"""What around a call watches each op or keeps what is computed (modes, profilers)."""

from typing import Any

import pytest
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils import parametrize

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import session
from tests.behaviour.inputs import plain
from tests.behaviour.shared import integers


class Symmetric(nn.Module):
    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def forward(self, x):
        self.log.append("computed")
        return x.triu() + x.triu(1).mT


@pytest.mark.parametrize("kind", ["module", "function"])
@session
def test_parametrizations_are_computed_once_under_parametrize_cached(compile, kind: str):
    log: list[str] = []
    module = integers(nn.Linear(3, 3))
    parametrize.register_parametrization(module, "weight", Symmetric(log))
    f = compile(module) if kind == "module" else compile(lambda x: module(x) + module(x))
    x = plain(2, 3)
    yield f(x), list(log)
    with parametrize.cached():
        yield f(x), f(x), list(log)
        weight = module.weight
        yield f(x), weight is module.weight, list(log)
    out = f(x)
    out.sum().backward()
    yield out, list(log), module.parametrizations.weight.original.grad


def test_a_function_without_parametrizations_is_compiled_under_parametrize_cached():
    before = aotcheck.counters().compiled
    f = aotcheck.aot_function(lambda x: x * 2)
    with parametrize.cached():
        f(plain(2))
    assert aotcheck.counters().compiled == before + 1


@pytest.mark.parametrize("register", [register_module_forward_hook, register_module_forward_pre_hook])
@session
def test_global_module_hooks_are_called_for_every_module_on_every_call(compile, register: Any):
    module = integers(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    f = compile(module)
    met: list[str] = []
    handle = register(lambda m, *_: met.append(type(m).__name__))
    try:
        yield f(plain(2, 3)), list(met)
        yield f(plain(2, 3)), list(met)
    finally:
        handle.remove()
    yield f(plain(2, 3)), list(met)
