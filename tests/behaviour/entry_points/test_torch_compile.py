"""Behind torch.compile(backend="aotcheck")."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aotcheck.autograd import dynamo
from tests.behaviour.compilers import aotcheck, backend
from tests.behaviour.harness import Recorder, attempt_later, check, session, through_dynamo
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.shared import REASON


@pytest.mark.parametrize(
    "function", ["torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))", "torch.compile(torch.sin, backend='eager')(x)"]
)
def test_dynamo_loaded_during_a_trace_compiles_nothing_for_it(function):
    script = f"""
import sys, torch, aotcheck
from aotcheck import _torch
assert _torch.DYNAMO not in sys.modules
real = torch.compile
try:
    print(aotcheck.aot_function(lambda x: {function})(torch.zeros(2)).tolist())
except aotcheck.UnsupportedError as error:
    print(error.reason)
assert torch.compile is real
stats = sys.modules[_torch.DYNAMO].utils.counters["stats"]
assert not stats, stats
torch.compile(torch.nn.Linear(1, 1), backend="eager")(torch.zeros(1))
assert stats["unique_graphs"] == 1, stats
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (REASON if "cond" in function else "[0.0, 0.0]")


def test_a_refused_graph_behind_torch_compile_runs_eagerly():
    torch._dynamo.reset()
    x = plain(3)
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        out = through_dynamo(lambda x: x[x > 0] * 2)(x)
    assert torch.equal(out, x[x > 0] * 2)


def test_torch_compile_finds_the_backend_by_name():
    assert "aotcheck" in torch._dynamo.list_backends(exclude_tags=())


@pytest.fixture
def fresh_dynamo():
    torch._dynamo.reset()
    yield through_dynamo
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "function",
    [lambda x, y: x @ y, lambda x, y: (x * 2, y.t(), x), lambda x, y: x.sum().backward() if False else (x @ y).relu()],
    ids=["product", "aliases", "activation"],
)
def test_functions_through_torch_compile_are_as_in_eager(function, fresh_dynamo):
    check(function, lambda: given(leaf(2, 3), leaf(3, 2, seed=1)), compile=fresh_dynamo)


def test_mutations_through_torch_compile_reach_the_arguments(fresh_dynamo):
    def f(x, y):
        x[0].add_(1)
        y.mul_(x)
        return x + y

    check(f, lambda: given(plain(2, 3), plain(2, 3, seed=1)), compile=fresh_dynamo)


@session(compile="fresh_dynamo")
def test_a_view_that_crosses_a_graph_break_stays_a_view(compile):
    def f(x):
        v = torch.ones_like(x)[1:]
        torch._dynamo.graph_break()
        with torch.no_grad():
            torch.add(x, x, out=v)
        v.mul_(x)
        return v

    x = leaf(3)
    v = compile(f)(x)
    yield v
    yield attempt_later(lambda: v.sum().backward()), x


def test_a_second_call_with_another_shape_through_torch_compile_is_right(fresh_dynamo):
    def compile(f):
        return torch.compile(f, backend=backend(), dynamic=False)

    check(lambda x: x * 2 + 1, lambda: given(leaf(3)), lambda: given(leaf(4)), compile=compile)


def test_a_graph_break_keeps_aliases_among_results(fresh_dynamo):
    def f(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y.view(-1), y

    check(f, lambda: given(leaf(2, 3)), compile=fresh_dynamo)


@session(rtol=1e-6)
def test_a_torch_compiled_function_called_inside_is_traced(compile):
    factor = 2
    inner = torch.compile(lambda x: x.sin() * factor, backend="eager")
    f = compile(lambda x: inner(x) + 1)
    for now in (2, 3, 2):
        factor = now
        x = leaf(3)
        out = f(x)
        out.sum().backward()
        yield out, x.grad


@session
def test_a_torch_compiled_function_called_in_a_custom_backward_is_traced(compile):
    inner = torch.compile(lambda g: g * 3, backend="eager")

    class Triple(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return inner(g)

    f = compile(lambda x: Triple.apply(x) * 2)
    for k in range(2):
        x = leaf(3, seed=k)
        out = f(x)
        out.sum().backward()
        yield out, x.grad


def test_dynamo_still_compiles_a_function_that_was_called_in_a_trace():
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


def test_options_of_torch_compile_reach_the_compiler():
    torch._dynamo.reset()
    recorder = Recorder()
    options = {"fw_compiler": recorder.forward, "bw_compiler": recorder.backward}
    check(
        lambda x: x.sin() * 2,
        lambda: given(leaf(3)),
        compile=lambda f: torch.compile(f, backend=backend(), options=options),
    )
    assert (len(recorder.forwards), len(recorder.backwards)) == (1, 1)


@pytest.mark.parametrize("wrong", [{"options": {"compiler": aotcheck.nop}}, {"mode": "reduce-overhead"}])
def test_unknown_options_of_torch_compile_are_named_in_the_error(wrong):
    torch._dynamo.reset()
    (said,) = wrong["options"] if "options" in wrong else [wrong["mode"]]
    with pytest.raises(Exception, match=f"'{said}'"):
        torch.compile(lambda x: x * 2, backend=backend(), **wrong)(plain(3))


def test_options_of_torch_compile_reach_inductor(monkeypatch):
    """What Inductor makes of a graph is its own business; here the graph runs."""
    from torch._inductor import compile_fx, config

    torch._dynamo.reset()
    seen = []

    def compiler(graph, examples):
        seen.append(config.max_autotune)
        return graph

    monkeypatch.setattr(compile_fx, "compile_fx_inner", compiler)
    before = config.max_autotune
    check(
        lambda x: nn.functional.silu(x) * 2,
        lambda: given(leaf(3)),
        compile=lambda f: torch.compile(f, backend=dynamo.aotcheck_inductor, options={"max_autotune": True}),
        rtol=1e-6,
    )
    assert seen == [True, True]
    assert config.max_autotune == before
    with pytest.raises(Exception, match="no_such_option"):
        torch.compile(lambda x: x * 3, backend=dynamo.aotcheck_inductor, options={"no_such_option": 1})(plain(3))


def test_backends_of_torch_compile_are_declared_as_entry_points():
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    for name, home in tomllib.loads(text)["project"]["entry-points"]["torch_dynamo_backends"].items():
        assert home == f"{dynamo.__name__}:{name}"
        assert callable(getattr(dynamo, name))
