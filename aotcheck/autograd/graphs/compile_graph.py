"""Graphs handed to compilers, and what comes back made callable."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aotcheck import _torch
from aotcheck.autograd.config import config
from aotcheck.autograd.graphs.graph import FakeValues, Graph, GraphModule, assert_functional, graph_module, interpreter
from aotcheck.autograd.graphs.schema_check import checked

Compiler = Callable[[fx.GraphModule, list[Any]], Callable[..., Any]]
Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]
Decompositions = dict[Any, Any]

_COPY = torch.ops.aten.copy_.default


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
            assert_sound(graph_module(graph, names, fakes)[0])
        return interpreter(graph)
    module, examples = graph_module(graph, names, fakes, title)
    if decompositions:
        module = decompose(module, examples, decompositions)
    return compile_module(compiler, module, examples)


def compile_module(compiler: Compiler | None, module: fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
    """What ``compiler`` makes of ``module``, as a callable that takes its inputs one by one."""
    if config().debug:
        assert_sound(module)
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


def assert_sound(module: fx.GraphModule) -> None:
    """What debug mode asks of each graph. Raises NotFunctionalError, or FX's RuntimeError."""
    assert_functional(module)
    module.graph.lint()


def decompose(module: fx.GraphModule, examples: list[Any], table: Decompositions) -> fx.GraphModule:
    """The graph with each op in ``table`` written out; its aliasing was settled before and does not change."""
    from torch.fx.experimental.proxy_tensor import make_fx

    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    module, written = _writes_apart(module)
    with torch.no_grad():
        traced = make_fx(
            torch.func.functionalize(module.forward, remove="mutations"),
            decomposition_table=table,
            _allow_non_fake_inputs=True,
        )(*examples)
    _torch.rename_placeholders(traced.graph, names)
    traced.graph.eliminate_dead_code()
    if written:
        _append_writes(traced.graph, written)
    traced.recompile()
    return traced


def _writes_apart(module: fx.GraphModule) -> tuple[fx.GraphModule, list[str]]:
    """``module`` with what it writes to its inputs returned instead, after its results; and which inputs these are."""
    if all(n.target is not _COPY for n in module.graph.nodes):
        return module, []
    graph = fx.Graph()
    results: Any = graph.graph_copy(module.graph, {})
    writes = [n for n in graph.nodes if n.target is _COPY]
    targets, values = [n.args[0].name for n in writes], [n.args[1] for n in writes]
    for n in writes:
        graph.erase_node(n)
    graph.output((*results, *values))
    return GraphModule(module, graph), targets


def _append_writes(graph: fx.Graph, written: Sequence[str]) -> None:
    """Write the last results to the inputs ``written``, once what lies in their memory has been copied."""
    (end,) = graph.find_nodes(op="output")
    given = {n.name: n for n in graph.find_nodes(op="placeholder")}
    overwritten = {given[name] for name in written}
    results = []
    for result in end.args[0]:
        if isinstance(result, fx.Node) and _viewed(result) in overwritten:
            with graph.inserting_before(end):
                copy = graph.call_function(torch.ops.aten.clone.default, (result,))
            copy.meta.update(result.meta)
            result = copy
        results.append(result)
    with graph.inserting_before(end):
        for name, value in zip(written, results[-len(written) :], strict=True):
            write = graph.call_function(_COPY, (given[name], value))
            write.meta["val"] = given[name].meta.get("val")
    end.args = (tuple(results[: -len(written)]),)


def _viewed(node: fx.Node) -> fx.Node:
    """What ``node`` is a view of, or a view of a view; ``node`` itself where it is none."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], fx.Node):
        target: Any = node.target
        returns = _torch.schema_of(target).returns if isinstance(target, _torch.OpOverload) else ()
        if target is not operator.getitem and not any(r.alias_info is not None for r in returns):
            break
        node = node.args[0]
    return node
