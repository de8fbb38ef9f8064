"""The joint graph: results with a history, in components, and the gradients that each component gives.

Two results are of one component if eager's graphs from them share a node that is neither an accumulator nor an input's
own. Each component has a backward of its own, as in eager.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.analyze.results import Result
from aotcheck.autograd2.errors import UnsupportedError
from aotcheck.autograd2.ir.graph import Node
from aotcheck.autograd2.ir.meta import Geometry, row_major
from aotcheck.autograd2.ir.signature import Fresh, Given
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.replica import Replica
from aotcheck.autograd2.trace.run import Traced

__all__ = ["Backward", "Component", "components", "trace_backward"]


@dataclass(frozen=True, eq=False)
class Component:
    """Results whose backwards belong together.

    Args:
        results: positions among the graph's results.
        inputs: the inputs to which gradients may flow, and results that are leaves made inside.
    """

    results: tuple[int, ...]
    inputs: tuple[Given | Fresh, ...]


@dataclass(frozen=True, eq=False)
class Backward:
    """A backward of a component for some of its results.

    Args:
        component: of which results.
        defined: for each of its results, whether there is a tangent.
        tangents: a placeholder for each defined tangent.
        geometries: how each of these lies.
        gradients: for each input of the component, what it gets, or None.
        error: what eager says, if its backward raises.
    """

    component: Component
    defined: tuple[bool, ...]
    tangents: tuple[Node, ...]
    geometries: tuple[Geometry, ...]
    gradients: tuple[Node | None, ...]
    error: str = ""


def components(traced: Traced, results: Sequence[Result]) -> tuple[Component, ...]:
    """The results with a history, grouped."""
    ends = {i.grad_fn: Given(k) for k, i in enumerate(traced.inputs) if i.grad_fn is not None}
    leaves: dict[Tensor, Given | Fresh] = {i.replica: Given(k) for k, i in enumerate(traced.inputs)}
    leaves |= {r.leaf: Fresh(k) for k, r in enumerate(results) if r.leaf is not None}
    groups: list[tuple[list[int], set[Any], set[Given | Fresh]]] = []
    for k, result in enumerate(results):
        if result.tensor is None or result.leaf is not None:
            continue
        nodes, inputs = _reached(result.tensor.grad_fn, ends, leaves)
        merged: tuple[list[int], set[Any], set[Given | Fresh]] = ([k], nodes, inputs)
        apart = []
        for group in groups:
            if group[1] & nodes:
                merged = (group[0] + merged[0], merged[1] | group[1], merged[2] | group[2])
            else:
                apart.append(group)
        groups = [*apart, merged]
    return tuple(Component(tuple(sorted(g[0])), tuple(sorted(g[2], key=str))) for g in groups)


def _reached(
    start: Any, ends: dict[Any, Given], leaves: dict[Tensor, Given | Fresh]
) -> tuple[set[Any], set[Given | Fresh]]:
    """The nodes of autograd from ``start`` on, and the inputs and leaves at which they end.

    A leaf that the function made and dropped is no end: nobody sees its gradient.
    """
    nodes: set[Any] = set()
    inputs: set[Given | Fresh] = set()
    todo = [start]
    while todo:
        node = todo.pop()
        if node is None or node in nodes:
            continue
        if node in ends:
            inputs.add(ends[node])
        elif _torch.accumulates(node):
            leaf = node.variable
            if leaf in leaves and leaf.requires_grad:
                inputs.add(leaves[leaf])
        else:
            nodes.add(node)
            todo += [n for n, _ in node.next_functions]
    return nodes, inputs


def trace_backward(
    traced: Traced, results: Sequence[Result], component: Component, defined: tuple[bool, ...]
) -> Backward:
    """Record the backward of a component for tangents of the results that are ``defined``.

    Raises:
        UnsupportedError: the backward does what cannot be traced.
    """
    tracer = traced.tracer
    tensors, tangents, nodes, geometries = [], [], [], []
    for k, wanted in zip(component.results, defined, strict=True):
        if not wanted:
            continue
        result = results[k]
        assert result.tensor is not None
        g = result.geometry
        lies = g if g.dense_order is not None and not (g.conj or g.neg) else row_major(g.shape, g.dtype)
        lies = lies._replace(offset=0)
        assert result.node.device is not None
        node = tracer.graph.placeholder(lies, result.node.device)
        tracer.graph.placeholders.remove(node)
        tensors.append(result.tensor)
        tangents.append(tracer.fresh_at(lies, node, result.node.device))
        nodes.append(node)
        geometries.append(lies)
    edges = [_edge(traced, results, end) for end in component.inputs]
    if not edges:
        return Backward(component, defined, tuple(nodes), tuple(geometries), (None,))
    tracer.in_backward = True
    with torch.inference_mode(False), _torch.single_threaded_backward(), _torch.autocast_off(), tracer:
        try:
            found = torch.autograd.grad(tensors, edges, tangents, allow_unused=True, retain_graph=True)
        except UnsupportedError:
            raise
        except _torch.GuardOnDataDependentSymNode:
            refuse(Event.DATA, "a backward branches on a size that data decide")
        except RuntimeError as error:
            if not _torch.tells_of_lost_values(error):
                raise UnsupportedError("backward that eager refuses", str(error)) from error
            none = (None,) * len(component.inputs)
            return Backward(component, defined, tuple(nodes), tuple(geometries), none, str(error))
        finally:
            tracer.in_backward = False
    gradients: list[Node | None] = []
    for gradient in found:
        if gradient is not None and type(gradient) is not Replica:
            refuse(Event.CAPTURED, "a gradient is no tensor of the trace")
        gradients.append(None if gradient is None else tracer.table.read(gradient))
    return Backward(component, defined, tuple(nodes), tuple(geometries), tuple(gradients))


def _edge(traced: Traced, results: Sequence[Result], end: Given | Fresh) -> Any:
    """Where the gradient of an input, or of a leaf made inside, arrives."""
    if isinstance(end, Fresh):
        return results[end.index].leaf
    given = traced.inputs[end.input]
    return given.replica if given.edge is None else given.edge
