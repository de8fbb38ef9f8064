"""The flat value of a storage: all of it in one dimension; geometries are cut from it and written into it.

A flat value is contiguous and starts at its storage's beginning, since ``as_strided`` counts from there. For a caller's
storage it is a placeholder of its own. Its elements are those of the storage's tensors, or bytes where these differ.
"""

from __future__ import annotations

import torch

from aotcheck.autograd2.ir.graph import Graph, Node
from aotcheck.autograd2.ir.meta import Geometry, row_major
from aotcheck.autograd2.ir.size import Size, same
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.view import StorageState, View

aten = torch.ops.aten


def flat_geometry(nbytes: Size, dtype: torch.dtype) -> Geometry:
    """A whole storage in one dimension."""
    if not same(nbytes % dtype.itemsize, 0):
        refuse(Event.ODD, str(dtype))
    return row_major((nbytes // dtype.itemsize,), dtype)


def flat_of_root(graph: Graph, state: StorageState, root: View) -> tuple[View, Node]:
    """The flat view of a storage that the function made, and its value: what ``root`` holds, in one dimension."""
    g, value, lies = root.geometry, root.value, flat_geometry(state.nbytes, root.geometry.dtype)
    assert value is not None
    value = without_bits(graph, g, value)
    order = g.dense_order
    if order is not None and same(g.offset, 0):
        if order != list(range(len(order))):
            value = graph.like(value, aten.permute.default, value, order)
        value = graph.like(value, aten.reshape.default, value, [-1])
        value = graph.like(value, aten.clone.default, value, memory_format=torch.contiguous_format)
        if not same(lies.numel, g.numel):
            refuse(Event.UNKNOWN_STORAGE, "memory behind what an op gave")
    else:
        zeros = graph.like(value, aten.zeros.default, [*lies.shape], dtype=g.dtype, device=state.device)
        value = graph.like(value, aten.as_strided_scatter.default, zeros, value, [*g.shape], [*g.stride], g.offset)
    return View(state, lies), value


def without_bits(graph: Graph, g: Geometry, value: Node) -> Node:
    """What lies in memory where ``value`` is read through ``g``."""
    if g.neg:
        value = graph.like(value, aten.neg.default, value)
    return graph.like(value, aten._conj_physical.default, value) if g.conj else value


def pad(graph: Graph, value: Node, count: Size, dtype: torch.dtype) -> Node:
    """``value`` with ``count`` more elements, whose content eager leaves undefined."""
    tail = graph.like(value, aten.zeros.default, [count], dtype=dtype, device=value.device)
    return graph.like(value, aten.cat.default, [value, tail])


def _is_all(flat: Geometry, g: Geometry) -> bool:
    whole = flat_geometry(flat.numel * flat.dtype.itemsize, g.dtype)
    return same(g.offset, 0) and g.is_contiguous and 0 not in g.stride and same(g.numel, whole.numel)


def gather(graph: Graph, flat: Geometry, value: Node, g: Geometry) -> Node:
    """What lies at ``g`` in a flat value."""
    value = value if flat.dtype == g.dtype else graph.view(aten.view.dtype, value, g.dtype)
    if not _is_all(flat, g):
        value = graph.view(aten.as_strided.default, value, [*g.shape], [*g.stride], g.offset)
    elif len(g.shape) != 1:
        value = graph.view(aten.view.default, value, [*g.shape])
    if g.conj:
        value = graph.view(aten._conj.default, value)
    return graph.view(aten._neg_view.default, value) if g.neg else value


def scatter(graph: Graph, flat: Geometry, old: Node, g: Geometry, value: Node) -> Node:
    """The flat value ``old`` with ``value`` written at ``g``."""
    value = without_bits(graph, g, value)
    if not _is_all(flat, g):
        if flat.dtype != g.dtype:
            old = graph.like(old, aten.clone.default, graph.view(aten.view.dtype, old, g.dtype))
        value = graph.like(old, aten.as_strided_scatter.default, old, value, [*g.shape], [*g.stride], g.offset)
    elif len(g.shape) != 1:
        value = graph.view(aten.reshape.default, value, [-1])
    if flat.dtype == g.dtype:
        return value
    value = graph.like(value, aten.clone.default, value, memory_format=torch.contiguous_format)
    return graph.like(value, aten.view.dtype, value, flat.dtype)
