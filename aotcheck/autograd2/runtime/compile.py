"""compile: graphs become FX modules, and a user's compilers make callables of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, fx

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.config import config
from aotcheck.autograd2.ir.fx import examples, graph_module, symbols_of, with_values
from aotcheck.autograd2.ir.graph import Node
from aotcheck.autograd2.logs import log, python_of
from aotcheck.autograd2.partition.default import BackwardGraph, ForwardGraph
from aotcheck.autograd2.partition.users import PartitionFunction
from aotcheck.autograd2.runtime.code import function_of
from aotcheck.autograd2.runtime.functional import assert_functional

Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def nop(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The compiler that runs graphs as they are."""
    return module


@dataclass(frozen=True)
class Compilers:
    """The user's: ``forward`` where there is a backward, ``inference`` where there is none.

    Args:
        decompositions: of ops that are to be made of others, what makes them.
        partition: cuts joint graphs, in place of the default partition.
        keep_writes: whether graphs without a backward write inputs themselves, where they end.
    """

    forward: Compiler = nop
    backward: Compiler = nop
    inference: Compiler = nop
    decompositions: Mapping[Any, Callable[..., Any]] | None = None
    partition: PartitionFunction | None = None
    keep_writes: bool = False


def compile_forward(
    graph: ForwardGraph, compilers: Compilers, kept: Mapping[int, int], *, differentiable: bool, env: Any = None
) -> Callable[..., Any]:
    """What computes results and saved tensors of a forward graph, taking its inputs one by one, then its symbols.

    Results that are ``kept``, by position, it writes to inputs; these it gives in their place.
    """
    compiler, table = compilers.forward if differentiable else compilers.inference, compilers.decompositions
    log("forward", lambda: python_of(forward_module(graph, differentiable=differentiable)[0], "forward"))
    if compiler is nop and not table:
        _check(forward_module, graph)
        results = (*graph.results, *graph.saved)
        return function_of([*graph.inputs, *taken_symbols(graph)], graph.nodes, results, graph.defined)
    made = _compiled(*forward_module(graph, differentiable=differentiable), compiler, table, env, kept)
    count, written = len(graph.results), set(kept.values())
    own = [k for k, n in enumerate((*graph.results, *graph.saved)) if n.op is _CLONE or k < count]
    own = [k for k in own if k not in kept]
    if not kept:
        return lambda *inputs: _with_own_memory(inputs, made(*inputs), own)

    def run(*inputs: Any) -> list[Any]:
        results = [*made(*[a.data if k in written else a for k, a in enumerate(inputs)])]
        for k, j in kept.items():
            results.insert(k, inputs[j])
        return _with_own_memory(inputs, results, own)

    return run


_CLONE = torch.ops.aten.clone.default


def _with_own_memory(inputs: Sequence[Any], results: Sequence[Any], own: Sequence[int]) -> list[Any]:
    """Results, of which a compiler may have merged those that ``own`` memory with each other or with inputs."""
    found, met = list(results), {_address(a) for a in inputs}
    for k in own:
        if (address := _address(found[k])) in met and address is not None:
            found[k] = found[k].clone()
        met.add(address)
    return found


def _keep_writes(module: fx.GraphModule, kept: Mapping[int, int]) -> None:
    """Write results to inputs where the graph ends. A decomposition may give an input as a result: that is copied."""
    graph, output = module.graph, module.graph.output_node()
    inputs, results = graph.find_nodes(op="placeholder"), [*cast(Any, output.args[0])]
    memory = {_address(n.meta["val"]) for n in inputs}
    with graph.inserting_before(output):
        for k, n in enumerate(results):
            if (address := _address(n.meta.get("val"))) is not None and address in memory:
                results[k] = graph.call_function(_CLONE, (n,))
                results[k].meta.update(n.meta)
        for k, j in kept.items():
            graph.call_function(torch.ops.aten.copy_.default, (inputs[j], results[k])).meta.update(results[k].meta)
    output.args = ([n for k, n in enumerate(results) if k not in kept],)
    module.recompile()


def _address(a: Any) -> int | None:
    return _torch.address_of(a) if isinstance(a, Tensor) and a.numel() else None


def forward_module(graph: ForwardGraph, *, differentiable: bool = True) -> tuple[fx.GraphModule, list[Node | str]]:
    """A forward graph as compilers get it, and what it takes."""
    inputs: list[Node | str] = [*graph.inputs, *taken_symbols(graph)]
    named = [(f"primals_{k + 1}" if differentiable else f"arg{k}_1", n) for k, n in enumerate(inputs)]
    for title, n in named:
        if isinstance(n, Node):
            n.name = title
    results = (*graph.results, *graph.saved)
    return graph_module(named, graph.nodes, results, "aotcheck_forward", graph.defined), inputs


def taken_symbols(graph: ForwardGraph) -> list[str]:
    """The symbols of which a forward graph is given the values."""
    return [name for name in symbols_of(graph.nodes) if name not in graph.defined]


def compile_backward(graph: BackwardGraph, compilers: Compilers, env: Any = None) -> Callable[..., Any]:
    """What computes gradients, taking saved tensors, then symbols, then tangents."""
    compiler, table = compilers.backward, compilers.decompositions
    log("backward", lambda: python_of(backward_module(graph)[0], "backward"))
    if compiler is nop and not table:
        _check(backward_module, graph)
        return function_of(_backward_inputs(graph), graph.nodes, graph.backward.gradients, {})
    with torch.inference_mode(False), torch.enable_grad():
        return _compiled(*backward_module(graph), compiler, table, env)


def backward_module(graph: BackwardGraph) -> tuple[fx.GraphModule, list[Node | str]]:
    """A backward graph as compilers get it, and what it takes."""
    inputs, tangents = _backward_inputs(graph), len(graph.inputs) - len(graph.saved)
    kept = inputs[: len(inputs) - tangents]
    names = [n.name if isinstance(n, Node) and n.name else f"saved_{k + 1}" for k, n in enumerate(kept)]
    names += [f"tangents_{k + 1}" for k in range(tangents)]
    named = list(zip(names, inputs, strict=True))
    return graph_module(named, graph.nodes, graph.backward.gradients, "aotcheck_backward"), inputs


def _backward_inputs(graph: BackwardGraph) -> list[Node | str]:
    count = len(graph.saved)
    return [*graph.inputs[:count], *symbols_of(graph.nodes), *graph.inputs[count:]]


def _check(make: Callable[[Any], tuple[fx.GraphModule, Any]], graph: Any) -> None:
    if config().debug:
        assert_functional(make(graph)[0])


def _compiled(
    module: fx.GraphModule, inputs: Sequence[Node | str], compiler: Compiler, table: Any, env: Any, kept: Any = ()
) -> Callable[..., Any]:
    if config().debug:
        assert_functional(module)
    fakes = examples(inputs, env)
    if table:
        module = _torch.decomposed(module, fakes, table)
    else:
        with_values(module, fakes)
    if kept:
        _keep_writes(module, kept)
    made = compiler(module, fakes)
    if not callable(made):
        raise TypeError(f"the compiler returned a {type(made).__name__}, which cannot be called")
    if getattr(made, "_boxed_call", False):
        return lambda *args: made(list(args))
    return made
