"""compile: graphs become FX modules, and a user's compilers make callables of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from aotcheck.autograd2.ir.fx import examples, graph_module
from aotcheck.autograd2.ir.graph import Node
from aotcheck.autograd2.partition.default import BackwardGraph, ForwardGraph

__all__ = ["Compilers", "compile_backward", "compile_forward", "nop"]

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


def compile_forward(graph: ForwardGraph, compiler: Compiler) -> Callable[..., Any]:
    """What computes results and saved tensors of a forward graph, taking its inputs one by one."""
    inputs = [(f"primals_{k + 1}", n) for k, n in enumerate(graph.inputs)]
    module = graph_module(inputs, graph.nodes, (*graph.results, *graph.saved), "aotcheck_forward")
    return _compiled(module, compiler, graph.inputs)


def compile_backward(graph: BackwardGraph, compiler: Compiler) -> Callable[..., Any]:
    """What computes gradients, taking saved tensors and then tangents."""
    count = len(graph.saved)
    names = [f"saved_{k + 1}" for k in range(count)]
    names += [f"tangents_{k + 1}" for k in range(len(graph.inputs) - count)]
    inputs = list(zip(names, graph.inputs, strict=True))
    module = graph_module(inputs, graph.nodes, graph.backward.gradients, "aotcheck_backward")
    return _compiled(module, compiler, graph.inputs)


def _compiled(module: fx.GraphModule, compiler: Compiler, inputs: Sequence[Node]) -> Callable[..., Any]:
    if compiler is nop:
        forward: Callable[..., Any] = module.forward
        return forward
    made = compiler(module, examples(inputs))
    if getattr(made, "_boxed_call", False):
        return lambda *args: made(list(args))
    return made
