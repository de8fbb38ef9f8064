"""BEHAVIOUR 1: what around a call watches each op or keeps what is computed, and compiled functions inside one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils import parametrize

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, check_session, leaf, plain
from tests.behaviour.test_section_1_modules import integers

# -- torch.jit.trace -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("called", [False, True], ids=["first", "called before"])
def test_torch_jit_trace_records_the_ops_of_the_original(called: bool):
    module = integers(nn.Linear(3, 2))
    compiled = aotcheck.aot_module(module)
    x = plain(2, 3)
    if called:
        compiled(x)
    traced = torch.jit.trace(compiled, (x,))
    other = plain(2, 3, seed=4)
    assert torch.equal(traced(other), module(other))
    assert "aten::linear" in str(traced.inlined_graph)
    assert torch.equal(compiled(other), module(other))


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning")
def test_torch_jit_trace_of_a_function_whose_code_there_is():
    f = aotcheck.aot_function(lambda x: x.sin() * 2)
    x = plain(3)
    f(x)
    traced = torch.jit.trace(f, (x,))
    assert "aten::sin" in str(traced.graph)
    assert torch.equal(traced(plain(3, seed=1)), f(plain(3, seed=1)))


# -- parametrize.cached --------------------------------------------------------------------------------


class Symmetric(nn.Module):
    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def forward(self, x):
        self.log.append("computed")
        return x.triu() + x.triu(1).mT


@pytest.mark.parametrize("kind", ["module", "function"])
def test_parametrizations_are_computed_once_where_they_are_cached(kind: str):
    def session(compile):
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

    check_session(session)


def test_a_function_without_parametrizations_is_compiled_where_others_are_cached():
    before = aotcheck.counters().compiled
    f = aotcheck.aot_function(lambda x: x * 2)
    with parametrize.cached():
        f(plain(2))
    assert aotcheck.counters().compiled == before + 1


# -- hooks of all modules, and of libraries ------------------------------------------------------------


@pytest.mark.parametrize("register", [register_module_forward_hook, register_module_forward_pre_hook])
def test_hooks_of_all_modules_are_called_for_the_modules_there_are(register: Any):
    def session(compile):
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

    check_session(session)


def test_a_hook_of_the_compiled_module_itself():
    compiled = aotcheck.aot_module(integers(nn.Linear(3, 3)))
    x = plain(2, 3)
    expected = compiled(x) * 2
    handle = compiled.register_forward_hook(lambda m, args, out: out * 2)
    assert torch.equal(compiled(x), expected)
    handle.remove()
    assert torch.equal(compiled(x) * 2, expected)


@pytest.mark.parametrize("kind", ["itself", "in a module", "in a function"])
def test_a_hook_of_a_library_asks_whether_the_module_is_trained(kind: str):
    def session(compile):
        torch.manual_seed(0)
        layer = nn.utils.spectral_norm(nn.Linear(3, 4)).to(plain(1).device)
        if kind == "in a function":
            f = compile(lambda x: layer(x))
        else:
            f = compile(layer if kind == "itself" else nn.Sequential(layer, nn.ReLU()))
        x = plain(2, 3)
        for step in ("train", "eval", "eval", "train", "eval"):
            getattr(layer, step)()
            f(x)
            yield layer.weight_u.clone()

    check_session(session, rtol=1e-6)


# -- functions compiled by torch.compile inside --------------------------------------------------------


def test_a_function_compiled_by_dynamo_inside():
    def session(compile):
        factor = 2
        inner = torch.compile(lambda x: x.sin() * factor, backend="eager")
        f = compile(lambda x: inner(x) + 1)
        for now in (2, 3, 2):
            factor = now
            x = leaf(3)
            out = f(x)
            out.sum().backward()
            yield out, x.grad

    check_session(session, rtol=1e-6)


def test_a_function_compiled_by_dynamo_in_a_custom_backward():
    inner = torch.compile(lambda g: g * 3, backend="eager")

    class Triple(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return inner(g)

    def session(compile):
        f = compile(lambda x: Triple.apply(x) * 2)
        for k in range(2):
            x = leaf(3, seed=k)
            out = f(x)
            out.sum().backward()
            yield out, x.grad

    check_session(session)


def test_what_dynamo_compiles_is_compiled_as_ever_after_a_trace():
    graphs: list[Any] = []

    def backend(graph, examples):
        graphs.append(graph)
        return graph.forward

    inner = torch.compile(lambda x: x * 2, backend=backend)
    f = aotcheck.aot_function(lambda x: inner(x) + 1)
    f(plain(3))
    assert not graphs
    inner(plain(3))
    assert len(graphs) == 1


# -- the device on which tensors are made --------------------------------------------------------------

_META = {
    "asked for": lambda x: (x * 2, torch.ones(2, device="meta")),
    "like": lambda x: torch.empty_like(x, device=torch.device("meta")).shape[0] * x,
    "to": lambda x: x.to("meta"),
    "by keyword": lambda x: x.to(device="meta"),
}


@pytest.mark.parametrize("function", _META.values(), ids=_META.keys())
def test_tensors_on_meta_are_refused(function: Any):
    with pytest.raises(aotcheck.UnsupportedError, match="device: the function makes a tensor on meta"):
        aotcheck.aot_function(function)(plain(2))


@pytest.mark.parametrize("inside", [False, True])
def test_tensors_made_where_meta_is_the_default_are_refused(inside: bool):
    def made(x):
        if inside:
            with torch.device("meta"):
                return x * 2, torch.ones(2)
        return x * 2, torch.ones(2)

    f = aotcheck.aot_function(made)
    x = plain(2)
    if not inside:
        assert f(x)[1].device == torch.device("cpu")
    with torch.device("cpu" if inside else "meta"), pytest.raises(aotcheck.UnsupportedError, match="device"):
        f(x)
    if not inside:
        assert f(x)[1].device == torch.device("cpu")


def test_what_makes_nothing_on_the_default_device_does_not_ask_for_it():
    def session(compile):
        f = compile(lambda x: (torch.zeros_like(x), x.new_ones(2), x.sum()))
        x = leaf(3)
        yield f(x)
        with torch.device("meta"):
            out = f(x)
        yield out, attempt(out[2].backward), x.grad

    check_session(session)
