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
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.replica import Replica
from aotcheck.autograd2.trace.run import Traced

__all__ = ["Backward", "Component", "components", "trace_backward"]


@dataclass(frozen=True, eq=False)
class Component:
    """Results whose backwards belong together.

    Args:
        results: positions among the graph's results.
        inputs: positions of the inputs to which gradients may flow.
    """

    results: tuple[int, ...]
    inputs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Backward:
    """A backward of a component for some of its results.

    Args:
        component: of which results.
        defined: for each of its results, whether there is a tangent.
        tangents: a placeholder for each defined tangent.
        geometries: how each of these lies.
        gradients: for each input of the component, what it gets, or None.
    """

    component: Component
    defined: tuple[bool, ...]
    tangents: tuple[Node, ...]
    geometries: tuple[Geometry, ...]
    gradients: tuple[Node | None, ...]


def components(traced: Traced, results: Sequence[Result]) -> tuple[Component, ...]:
    """The results with a history, grouped."""
    ends = {i.grad_fn: k for k, i in enumerate(traced.inputs) if i.edge is not None and i.grad_fn is not None}
    leaves: dict[Tensor, int] = {
        i.replica: k for k, i in enumerate(traced.inputs) if i.edge is not None and i.grad_fn is None
    }
    groups: list[tuple[list[int], set[Any], set[int]]] = []
    for k, result in enumerate(results):
        if result.tensor is None:
            continue
        nodes, inputs = _reached(result.tensor.grad_fn, ends, leaves)
        merged: tuple[list[int], set[Any], set[int]] = ([k], nodes, inputs)
        apart = []
        for group in groups:
            if group[1] & nodes:
                merged = (group[0] + merged[0], merged[1] | group[1], merged[2] | group[2])
            else:
                apart.append(group)
        groups = [*apart, merged]
    return tuple(Component(tuple(sorted(g[0])), tuple(sorted(g[2]))) for g in groups)


def _reached(start: Any, ends: dict[Any, int], leaves: dict[Tensor, int]) -> tuple[set[Any], set[int]]:
    """The nodes of autograd from ``start`` on, and the inputs at which they end."""
    nodes: set[Any] = set()
    inputs: set[int] = set()
    todo = [start]
    while todo:
        node = todo.pop()
        if node is None or node in nodes:
            continue
        if node in ends:
            inputs.add(ends[node])
        elif _torch.accumulates(node):
            found = leaves.get(node.variable)
            if found is None:
                refuse(Event.LEAF, "gradients flow to it")
            inputs.add(found)
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
    tracer.in_backward = True
    edges = [traced.inputs[k].edge for k in component.inputs]
    with _torch.single_threaded_backward(), torch.autocast("cpu", enabled=False), tracer:
        try:
            found = torch.autograd.grad(tensors, edges, tangents, allow_unused=True, retain_graph=True)
        except UnsupportedError:
            raise
        except _torch.GuardOnDataDependentSymNode:
            refuse(Event.DATA, "a backward branches on a size that data decide")
        except RuntimeError as error:
            raise UnsupportedError("backward that eager refuses", str(error)) from error
        finally:
            tracer.in_backward = False
    gradients: list[Node | None] = []
    for gradient in found:
        if gradient is not None and type(gradient) is not Replica:
            refuse(Event.CAPTURED, "a gradient is no tensor of the trace")
        gradients.append(None if gradient is None else tracer.table.read(gradient))
    return Backward(component, defined, tuple(nodes), tuple(geometries), tuple(gradients))
