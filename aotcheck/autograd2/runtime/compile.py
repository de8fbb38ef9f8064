"""compile: graphs become FX modules, and a user's compilers make callables of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from aotcheck.autograd2.ir.fx import examples, graph_module, symbols_of
from aotcheck.autograd2.ir.graph import Node
from aotcheck.autograd2.partition.default import BackwardGraph, ForwardGraph
from aotcheck.autograd2.runtime.code import function_of

__all__ = [
    "Compilers",
    "backward_module",
    "compile_backward",
    "compile_forward",
    "forward_module",
    "nop",
    "taken_symbols",
]

Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def nop(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The compiler that runs graphs as they are."""
    return module


@dataclass(frozen=True)
class Compilers:
    """The user's: ``forward`` where there is a backward, ``inference`` where there is none."""

    forward: Compiler = nop
    backward: Compiler = nop
    inference: Compiler = nop


def compile_forward(graph: ForwardGraph, compiler: Compiler, env: Any = None) -> Callable[..., Any]:
    """What computes results and saved tensors of a forward graph, taking its inputs one by one, then its symbols."""
    if compiler is nop:
        results = (*graph.results, *graph.saved)
        return function_of([*graph.inputs, *taken_symbols(graph)], graph.nodes, results, graph.defined)
    return _compiled(*forward_module(graph), compiler, env)


def forward_module(graph: ForwardGraph) -> tuple[fx.GraphModule, list[Node | str]]:
    """A forward graph as compilers get it, and what it takes."""
    inputs: list[Node | str] = [*graph.inputs, *taken_symbols(graph)]
    named = [(f"primals_{k + 1}", n) for k, n in enumerate(inputs)]
    results = (*graph.results, *graph.saved)
    return graph_module(named, graph.nodes, results, "aotcheck_forward", graph.defined), inputs


def taken_symbols(graph: ForwardGraph) -> list[str]:
    """The symbols of which a forward graph is given the values."""
    return [name for name in symbols_of(graph.nodes) if name not in graph.defined]


def compile_backward(graph: BackwardGraph, compiler: Compiler, env: Any = None) -> Callable[..., Any]:
    """What computes gradients, taking saved tensors, then symbols, then tangents."""
    if compiler is nop:
        return function_of(_backward_inputs(graph), graph.nodes, graph.backward.gradients, {})
    return _compiled(*backward_module(graph), compiler, env)


def backward_module(graph: BackwardGraph) -> tuple[fx.GraphModule, list[Node | str]]:
    """A backward graph as compilers get it, and what it takes."""
    inputs, tangents = _backward_inputs(graph), len(graph.inputs) - len(graph.saved)
    names = [f"saved_{k + 1}" for k in range(len(inputs) - tangents)]
    names += [f"tangents_{k + 1}" for k in range(tangents)]
    named = list(zip(names, inputs, strict=True))
    return graph_module(named, graph.nodes, graph.backward.gradients, "aotcheck_backward"), inputs


def _backward_inputs(graph: BackwardGraph) -> list[Node | str]:
    count = len(graph.saved)
    return [*graph.inputs[:count], *symbols_of(graph.nodes), *graph.inputs[count:]]


def _compiled(module: fx.GraphModule, inputs: Sequence[Node | str], compiler: Compiler, env: Any) -> Callable[..., Any]:
    made = compiler(module, examples(inputs, env))
    if getattr(made, "_boxed_call", False):
        return lambda *args: made(list(args))
    return made
