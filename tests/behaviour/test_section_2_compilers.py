"""BEHAVIOUR 1 and 2: what compilers and decompositions may do to graphs, and what is said where they fail."""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from aotcheck.autograd import dynamo
from tests.behaviour.compilers import aotcheck, backend
from tests.behaviour.harness import Recorder, attempt_later, backward, check, check_session, given, leaf, plain, write

aten = torch.ops.aten


def same(x, memory_format=None):
    """What a pass makes of a copy that it takes for needless."""
    return x


def without_copies(f):
    return aotcheck.aot_function(f, aotcheck.nop, decompositions={aten.clone.default: same})


def once_each(graph, examples):
    """Equal results are one tensor, and what equals an input is that input."""

    def run(*args):
        met = [a for a in args if isinstance(a, torch.Tensor)]

        def first(t):
            if not isinstance(t, torch.Tensor):
                return t
            found = next((m for m in met if m.shape == t.shape and m.dtype == t.dtype and torch.equal(m, t)), None)
            met.append(t)
            return t if found is None else found

        return [first(t) for t in graph(*args)]

    return run


def by_columns(graph, examples):
    """Matrices lie the other way round, each once."""

    def run(*args):
        made = {}
        return [
            made.setdefault(id(t), t.t().contiguous().t())
            if isinstance(t, torch.Tensor) and t.dim() == 2 and t.is_contiguous()
            else t
            for t in graph(*args)
        ]

    return run


def with_turning_compiler(f):
    return aotcheck.aot_function(f, by_columns, aotcheck.nop)


def with_merging_compiler(f):
    return aotcheck.aot_function(f, once_each, aotcheck.nop)


@pytest.mark.parametrize("compile", [without_copies, with_merging_compiler])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clone(),
        lambda x: (x.clone(), x.clone()),
        lambda x: (x * 2, (x * 2).clone(), x.clone().t()),
        lambda x: [x.clone()[0], x.clone().view(-1), x],
    ],
)
def test_results_that_eager_keeps_apart_stay_apart(compile, function):
    check(function, lambda: given(plain(2, 3)), lambda: given(leaf(2, 3)), lambda: given(plain(2, 3)), compile=compile)


@pytest.mark.parametrize("compile", [without_copies, with_merging_compiler])
def test_copies_of_what_is_written_hold_what_it_was(compile):
    def f(x, y):
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        return old

    check(f, lambda: given(plain(3), plain(3, seed=1)), lambda: given(plain(3), plain(3, seed=1)), compile=compile)


@pytest.mark.parametrize("compile", [without_copies, with_merging_compiler])
def test_saved_copies_hold_what_was_saved(compile):
    def f(x, y):
        product = x * y.clone()
        y.add_(1)
        z = x * 1
        return product, x * z.clone(), z

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            x, y = leaf(3), plain(3, seed=1)
            out = compiled(x, y)
            write(y)
            write(out[2])
            backward(out)
            yield x, y, out

    check_session(session, compile=compile)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: aten.native_dropout(x, 0.5, False)[0],
        lambda x: torch.stack([x]),
        lambda x: (torch.stack([x * 2]), x),
    ],
)
def test_tables_of_torchs_keep_results_apart(function):
    from torch._inductor.decomposition import select_decomp_table

    def compile(f):
        return aotcheck.aot_function(f, aotcheck.nop, decompositions=select_decomp_table())

    check(function, lambda: given(plain(2, 3)), lambda: given(leaf(2, 3)), compile=compile)


@pytest.mark.parametrize("table", ["ours", "torch's"])
def test_mutations_kept_in_a_decomposed_graph_come_last(table):
    from torch._inductor.decomposition import select_decomp_table

    def f(x, y):
        old = x.clone()
        kept = aten.native_dropout(x, 0.5, False)[0]
        x.add_(y)
        y.copy_(nn.functional.hardtanh(old))
        return old, kept.t(), x * 2

    recorder = Recorder()
    decompositions = {aten.clone.default: same} if table == "ours" else select_decomp_table()

    def compile(f):
        return aotcheck.aot_function(
            f, recorder.forward, decompositions=decompositions, keep_inference_input_mutations=True
        )

    def make():
        return given(plain(3, 3), plain(3, 3, seed=1))

    check(f, make, make, compile=compile)
    (graph,) = recorder.forwards
    ops = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
    assert ops[-2:] == ["aten.copy_.default"] * 2
    assert all("val" in n.meta for n in graph.graph.nodes if n.op == "call_function")


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
def test_options_that_there_are_not_are_named(wrong):
    torch._dynamo.reset()
    (said,) = wrong["options"] if "options" in wrong else [wrong["mode"]]
    with pytest.raises(Exception, match=f"'{said}'"):
        torch.compile(lambda x: x * 2, backend=backend(), **wrong)(plain(3))


def test_inductor_behind_dynamo_is_given_its_options(monkeypatch):
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


def test_backends_of_torch_compile_are_entry_points():
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    for name, home in tomllib.loads(text)["project"]["entry-points"]["torch_dynamo_backends"].items():
        assert home == f"{dynamo.__name__}:{name}"
        assert callable(getattr(dynamo, name))


def test_a_compiler_that_returns_nothing_is_said_to():
    x = plain(3)
    with pytest.raises(TypeError, match="the compiler returned a NoneType"):
        aotcheck.aot_function(lambda x: x.add_(1), lambda graph, examples: None)(x)
    assert torch.equal(x, plain(3))


def test_a_graph_that_fails_where_eager_does_not_is_told_of_with_its_error_and_the_callers_line():
    def compiler(graph, examples):
        def run(*args):
            raise ArithmeticError(f"a kernel of {len(examples)} inputs")

        return run

    def called(*args):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compiled(*args)
        return caught

    compiled = aotcheck.aot_function(lambda *args: sum(args), compiler)
    (first,) = called(plain(3))
    assert "ArithmeticError: a kernel of 1 inputs" in str(first.message)
    assert first.filename == __file__
    assert called(plain(3)) == [], "once"
    (second,) = called(plain(3), plain(3))
    assert "ArithmeticError: a kernel of 2 inputs" in str(second.message)


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize(
    "function",
    [
        torch.exp,
        lambda x: (lambda y: (y, y.sin()))(x.exp()),
        lambda x: (lambda y: (y, y * y))(x.clone()),
        lambda x: (lambda y: (y, y.t().sin()))(x.clone()),
    ],
)
def test_a_write_to_a_result_that_a_compiler_laid_out_otherwise_is_noticed(function, calls):
    """It is copied, and what is saved of it is that copy."""

    def session(compile):
        compiled = compile(function)
        for _ in range(calls):
            x = leaf(2, 3)
            results = compiled(x)
        results = [results] if isinstance(results, torch.Tensor) else list(results)
        yield results[0].stride()
        with torch.no_grad():
            results[0].add_(1)
        yield attempt_later(lambda: results[-1].sum().backward())
        yield x.grad

    check_session(session, compile=with_turning_compiler)


def test_what_is_refused_is_told_of_with_the_details():
    compiled = aotcheck.aot_function(lambda x: x.cpu().to_mkldnn().to_dense())
    with pytest.raises(aotcheck.UnsupportedError) as refused:
        compiled(plain(2, 2))
    from aotcheck.autograd.counters import _live

    _live.warned.discard(refused.value.reason)
    with aotcheck.patch_config(on_unsupported="eager"), pytest.warns(RuntimeWarning) as caught:
        compiled(plain(2, 2))
    assert str(refused.value) in str(caught[0].message)
    assert caught[0].filename == __file__


def test_the_policy_may_be_named():
    compiled = aotcheck.aot_function(lambda x: x * x.sum().item())
    with aotcheck.patch_config(on_unsupported="raise"), pytest.raises(aotcheck.UnsupportedError):
        compiled(plain(3))
    with aotcheck.patch_config(on_unsupported="eager") as settings:
        assert settings.on_unsupported is aotcheck.OnUnsupported.EAGER
        assert torch.equal(compiled(plain(3)), plain(3) * plain(3).sum().item())


@pytest.mark.parametrize(
    "wrong", [{"on_unsupported": "eagerly"}, {"cache_size": 0}, {"cache_size": "8"}, {"recompile_warning": -1}], ids=str
)
def test_settings_that_mean_nothing_are_refused(wrong):
    (value,) = wrong.values()
    with pytest.raises(ValueError, match=f"{value}"), aotcheck.patch_config(**wrong):
        pass
