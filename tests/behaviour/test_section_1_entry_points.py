"""BEHAVIOUR 1: the ways in, and what a compiler is called with."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys
from typing import Any

import functorch.compile
import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import Recorder, backward, check, check_session, given, leaf, plain

COMPILING = ("fw_compiler", "bw_compiler", "partition_fn", "decompositions", "inference_compiler")
OPTIONS = {
    "aot_function": (
        "fn",
        *COMPILING,
        "num_params_buffers",
        "keep_inference_input_mutations",
        "dynamic",
        "enable_log",
    ),
    "aot_module": ("mod",),
    "aot_module_simplified": ("mod", "args", *COMPILING, "keep_inference_input_mutations"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_arguments_are_named_as_torchs(name: str):
    ours = inspect.signature(getattr(aotcheck, name)).parameters
    torchs = inspect.signature(getattr(functorch.compile, name)).parameters
    assert set(OPTIONS[name]) <= set(ours)
    assert set(OPTIONS[name]) <= set(torchs)
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    names = [n for n in OPTIONS[name] if torchs[n].kind is not keyword_only]
    assert sorted(names, key=list(torchs).index) == sorted(names, key=list(ours).index), "in the order of torch's"


def test_a_compiled_function_is_named_and_called_as_the_original():
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

    def session(compile):
        def f(x, y):
            return x.sin() * y

        graph = make_fx(compile(f))(plain(3), plain(3, seed=1))
        yield str(graph.graph)

    check_session(session)


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


def test_the_compiler_that_stands_for_both_directions():
    graphs = []

    def compiler(graph, examples):
        graphs.append(graph)
        return graph

    y = aotcheck.aot_function(lambda x: x * x, fw_compiler=compiler)(leaf(3))
    backward([y])
    assert len(graphs) == 2


def test_the_inference_compiler_gets_what_needs_no_backward():
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


def test_a_key_is_compiled_once():
    recorder = Recorder()
    f = recorder.compile(lambda x: x * 2)
    for _ in range(3):
        f(leaf(3))
    assert len(recorder.forwards) == 1
    f(leaf(4))
    assert len(recorder.forwards) == 2
    f(leaf(3))
    assert len(recorder.forwards) == 2


def test_the_original_function_is_not_run_again_for_a_known_key(capsys):
    def f(x):
        print("runs")
        return x * 2

    compiled = aotcheck.aot_function(f)
    for _ in range(3):
        compiled(plain(3))
    assert capsys.readouterr().out == "runs\n"


def test_decompositions_apply_to_both_directions():
    from torch._decomp import get_decompositions

    recorder = Recorder()
    table = get_decompositions([torch.ops.aten.silu, torch.ops.aten.silu_backward])
    f = aotcheck.aot_function(
        nn.functional.silu, fw_compiler=recorder.forward, bw_compiler=recorder.backward, decompositions=table
    )
    x = leaf(3)
    backward([f(x)])
    ops = {str(node.target) for graph in recorder.graphs for node in graph.graph.nodes if node.op == "call_function"}
    assert ops
    assert not any("silu" in op for op in ops)
    again = leaf(3)
    backward([nn.functional.silu(again)])
    torch.testing.assert_close(x.grad, again.grad)


FIRST_USED = """
import torch, aotcheck
with torch.inference_mode():
    f = aotcheck.aot_function(lambda x: (x.exp().sum(), x * 2), lambda graph, inputs: graph)
    f(torch.ones(2))
x = torch.ones(2, requires_grad=True)
f(x)[1].sum().backward()
assert x.grad.tolist() == [2, 2] and not x.grad.is_inference()
"""


def test_it_may_be_needed_first_in_inference_mode():
    subprocess.run([sys.executable, "-c", FIRST_USED], check=True)
