"""Graphs handed to compilers, and what comes back made callable."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aotcheck import _torch
from aotcheck.autograd.config import config
from aotcheck.autograd.graphs.graph import FakeValues, Graph, assert_functional, graph_module, interpreter
from aotcheck.autograd.graphs.schema_check import checked

Compiler = Callable[[fx.GraphModule, list[Any]], Callable[..., Any]]
Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]
Decompositions = dict[Any, Any]


def nop(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The compiler that compiles nothing: the graph itself runs."""
    return module


@dataclasses.dataclass(frozen=True)
class Compilers:
    """What turns graphs into callables; None means that our own interpreter runs the graph.

    ``partition`` divides a joint graph as a user wants it; None for our own division, which needs no joint graph.
    ``keep_inference_mutations`` leaves writes to inputs in inference graphs, as one final ``copy_`` each.
    """

    forward: Compiler | None = None
    backward: Compiler | None = None
    inference: Compiler | None = None
    decompositions: Decompositions | None = None
    partition: Partition | None = None
    keep_inference_mutations: bool = False


def compile_graph(
    compiler: Compiler | None,
    graph: Graph,
    names: Sequence[str],
    fakes: FakeValues,
    decompositions: Decompositions | None,
    title: str,
) -> Callable[..., Any]:
    """``graph`` as a callable that takes its inputs one by one and returns a sequence.

    Args:
        names: those of the graph's inputs.
        fakes: where the example inputs and ``node.meta["val"]`` come from.
        title: which graph this is, for whoever prints it.
    """
    run = _compiled(compiler, graph, names, fakes, decompositions, title)
    return checked(graph, run) if config().debug else run


def _compiled(
    compiler: Compiler | None,
    graph: Graph,
    names: Sequence[str],
    fakes: FakeValues,
    decompositions: Decompositions | None,
    title: str,
) -> Callable[..., Any]:
    if compiler is None or (compiler is nop and not decompositions):
        if config().debug:
            assert_functional(graph_module(graph, names, fakes)[0])
        return interpreter(graph)
    module, examples = graph_module(graph, names, fakes, title)
    if decompositions:
        module = decompose(module, examples, decompositions)
    return compile_module(compiler, module, examples)


def compile_module(compiler: Compiler | None, module: fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
    """What ``compiler`` makes of ``module``, as a callable that takes its inputs one by one."""
    if config().debug:
        assert_functional(module)
    if compiler is None:
        return _torch.ready_forward(module)
    with torch.enable_grad():
        compiled = compiler(module, examples)
    if not callable(compiled):
        raise TypeError(f"the compiler returned a {type(compiled).__name__}, where a callable is expected")
    if isinstance(compiled, fx.GraphModule):
        return _torch.ready_forward(compiled)
    if getattr(compiled, "_boxed_call", False):
        return lambda *args: compiled(list(args))
    return compiled


def decompose(module: fx.GraphModule, examples: list[Any], table: Decompositions) -> fx.GraphModule:
    """The graph with each op in ``table`` written out; its aliasing was settled before and does not change."""
    from torch.fx.experimental.proxy_tensor import make_fx

    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    with torch.no_grad():
        traced = make_fx(
            torch.func.functionalize(module.forward, remove="mutations"),
            decomposition_table=table,
            _allow_non_fake_inputs=True,
        )(*examples)
    _torch.rename_placeholders(traced.graph, names)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced
