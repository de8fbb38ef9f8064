"""The entry functions, their keywords, what a compiler is called with, boxed, counters, configuration."""

import functools
import inspect
from typing import Any

import functorch.compile
import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import backward, check, session
from tests.behaviour.inputs import given, leaf, plain

COMPILING = ("fw_compiler", "bw_compiler", "partition_fn", "decompositions", "inference_compiler")

OPTIONS = {
    "aot_function": ("fn", *COMPILING, "num_params_buffers", "keep_inference_input_mutations", "dynamic", "enable_log"),
    "aot_module": ("mod",),
    "aot_module_simplified": ("mod", "args", *COMPILING, "keep_inference_input_mutations"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_entry_functions_have_the_keywords_of_torchs(name: str):
    ours = inspect.signature(getattr(aotcheck, name)).parameters
    torchs = inspect.signature(getattr(functorch.compile, name)).parameters
    assert set(OPTIONS[name]) <= set(ours)
    assert set(OPTIONS[name]) <= set(torchs)
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    names = [n for n in OPTIONS[name] if torchs[n].kind is not keyword_only]
    assert sorted(names, key=list(torchs).index) == sorted(names, key=list(ours).index), "in the order of torch's"


@session
def test_a_compiled_function_has_the_name_and_signature_of_the_original(compile):
    def scaled(x, *, by: float = 2.0):
        """Some documentation."""
        return x * by

    compiled = aotcheck.aot_function(scaled)
    assert (compiled.__name__, compiled.__qualname__, compiled.__doc__, compiled.__module__) == (
        *(scaled.__name__, scaled.__qualname__, scaled.__doc__, scaled.__module__),
    )
    assert inspect.signature(compiled) == inspect.signature(scaled)
    for nameless in (functools.partial(scaled, by=3.0), nn.ReLU(), torch.ops.aten.mul.Tensor):
        assert callable(aotcheck.aot_function(nameless))

    def f(x, y):
        return x.sin() * y

    graph = make_fx(compile(f))(plain(3), plain(3, seed=1))
    yield str(graph.graph)


def test_a_compiler_is_called_with_a_graph_and_fake_tensors():
    calls: list[tuple[Any, Any]] = []

    def compiler(graph, examples):
        calls.append((graph, examples))
        return graph

    x, y = leaf(2, 3), leaf(3, 2, seed=1)
    out = aotcheck.aot_function(lambda x, y: x @ y, fw_compiler=compiler, bw_compiler=compiler)(x, y)
    backward([out])
    assert len(calls) == 2
    for graph, examples in calls:
        assert isinstance(graph, torch.fx.GraphModule)
        for example in examples:
            assert isinstance(example, torch._subclasses.FakeTensor)
            assert example.device == x.device
    assert [tuple(example.shape) for example in calls[0][1]] == [(2, 3), (3, 2)]


def test_without_a_compiler_the_graph_is_interpreted():
    compiled = aotcheck.aot_function(lambda x: x * 2)
    x = leaf(3)
    assert torch.equal(compiled(x), x * 2)


def test_a_compiler_may_return_any_callable():
    def f(x, y):
        return x * y, x + y

    class Callable:
        def __init__(self, graph):
            self.graph = graph

        def __call__(self, *args):
            return self.graph(*args)

    for returned in (
        lambda graph: graph,
        lambda graph: graph.forward,
        Callable,
        lambda g: lambda *args: list(g(*args)),
    ):

        def compiler(graph, examples, returned=returned):
            return returned(graph)

        check(
            f,
            lambda: given(leaf(3), leaf(3, seed=1)),
            compile=lambda f, compiler=compiler: aotcheck.aot_function(f, fw_compiler=compiler, bw_compiler=compiler),
        )


def test_a_compiler_may_return_a_boxed_callable():
    boxes: list[list[torch.Tensor]] = []

    def compiler(graph, examples):
        def run(args):
            boxes.append(args)
            inputs = list(args)
            args.clear()
            return graph(*inputs)

        run._boxed_call = True
        return run

    check(
        lambda x, y: (x * y, x + y),
        lambda: given(leaf(3), leaf(3, seed=1)),
        compile=lambda f: aotcheck.aot_function(f, fw_compiler=compiler, bw_compiler=compiler),
    )
    assert boxes
    assert all(isinstance(box, list) for box in boxes)


def test_make_boxed_func_makes_a_boxed_callable():
    check(
        lambda x: x * x,
        lambda: given(leaf(3)),
        compile=lambda f: aotcheck.aot_function(
            f, fw_compiler=lambda graph, _: aotcheck.make_boxed_func(graph.forward)
        ),
    )


def test_fw_compiler_alone_compiles_both_directions():
    graphs = []

    def compiler(graph, examples):
        graphs.append(graph)
        return graph

    y = aotcheck.aot_function(lambda x: x * x, fw_compiler=compiler)(leaf(3))
    backward([y])
    assert len(graphs) == 2


def test_the_inference_compiler_is_called_when_no_result_requires_grad():
    seen = []

    def named(name):
        def compiler(graph, examples):
            seen.append(name)
            return graph

        return compiler

    f = aotcheck.aot_function(
        lambda x: x * 2,
        fw_compiler=named("forward"),
        bw_compiler=named("backward"),
        inference_compiler=named("inference"),
    )
    f(plain(3))
    assert seen == ["inference"]
    with torch.no_grad():
        f(leaf(3))
    assert seen == ["inference", "inference"]
    backward([f(leaf(3))])
    assert seen == ["inference", "inference", "forward", "backward"]


def test_on_unsupported_may_be_configured_by_name():
    def branches(x):
        return x * 2 if x.sum() > 0 else x * 3

    compiled = aotcheck.aot_function(branches)
    with aotcheck.patch_config(on_unsupported="raise"), pytest.raises(aotcheck.UnsupportedError):
        compiled(plain(3))
    with aotcheck.patch_config(on_unsupported="eager") as settings:
        assert settings.on_unsupported is aotcheck.OnUnsupported.EAGER
        assert torch.equal(compiled(plain(3)), branches(plain(3)))


@pytest.mark.parametrize(
    "wrong", [{"on_unsupported": "eagerly"}, {"cache_size": 0}, {"cache_size": "8"}, {"recompile_warning": -1}], ids=str
)
def test_invalid_settings_of_the_configuration_raise_value_error(wrong):
    (value,) = wrong.values()
    with pytest.raises(ValueError, match=f"{value}"), aotcheck.patch_config(**wrong):
        pass
