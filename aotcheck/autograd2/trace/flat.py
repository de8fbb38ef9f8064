"""The flat value of a storage: all of it in one dimension; geometries are cut from it and written into it.

A flat value is contiguous and starts at its storage's beginning, since ``as_strided`` counts from there. For a caller's
storage it is a placeholder of its own. Its elements are those of the storage's tensors, or bytes where these differ or
the storage does not hold a whole number of them.
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
    return row_major((nbytes // dtype.itemsize,), dtype)


def flat_of_root(graph: Graph, state: StorageState, root: View) -> tuple[View, Node]:
    """The flat view of a storage that the function made, and its value: what ``root`` holds, in one dimension."""
    g, value = root.geometry, root.value
    assert value is not None
    value = without_bits(graph, g, value)
    size = g.dtype.itemsize
    total, lies = state.nbytes // size, flat_geometry(state.nbytes, g.dtype)
    order = g.dense_order
    if order is not None and same(g.offset, 0):
        if order != list(range(len(order))):
            value = graph.like(value, aten.permute.default, value, order)
        value = graph.like(value, aten.reshape.default, value, [-1])
        value = graph.like(value, aten.clone.default, value, memory_format=torch.contiguous_format)
        if not same(total, g.numel):
            refuse(Event.UNKNOWN_STORAGE, "memory behind what an op gave")
    else:
        zeros = graph.like(value, aten.zeros.default, [total], dtype=g.dtype, device=state.device)
        value = graph.like(value, aten.as_strided_scatter.default, zeros, value, [*g.shape], [*g.stride], g.offset)
    odd = state.nbytes % size
    if not same(odd, 0):
        value = pad(graph, reinterpret(graph, value, g.dtype, torch.uint8, total), odd, torch.uint8)
        lies = flat_geometry(state.nbytes, torch.uint8)
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


def reinterpret(graph: Graph, value: Node, source: torch.dtype, target: torch.dtype, count: Size) -> Node:
    """A flat value of ``count`` elements seen as another dtype."""
    if source == target:
        return value
    if not same(source.itemsize * count % target.itemsize, 0):
        whole = source.itemsize * count // target.itemsize * target.itemsize // source.itemsize
        part = graph.view(aten.slice.Tensor, value, 0, 0, whole)
        value = graph.like(part, aten.clone.default, part)  # a view of another dtype wants a storage of whole elements
    return graph.view(aten.view.dtype, value, target)


def _is_all(flat: Geometry, g: Geometry) -> bool:
    whole = flat.shape[0] * flat.dtype.itemsize
    return same(g.offset, 0) and g.is_contiguous and 0 not in g.stride and same(g.numel * g.dtype.itemsize, whole)


def gather(graph: Graph, flat: Geometry, value: Node, g: Geometry) -> Node:
    """What lies at ``g`` in a flat value."""
    everything = _is_all(flat, g)
    value = reinterpret(graph, value, flat.dtype, g.dtype, flat.shape[0])
    if not everything:
        value = graph.view(aten.as_strided.default, value, [*g.shape], [*g.stride], g.offset)
    elif len(g.shape) != 1:
        value = graph.view(aten.view.default, value, [*g.shape])
    if g.conj:
        value = graph.view(aten._conj.default, value)
    return graph.view(aten._neg_view.default, value) if g.neg else value


def scatter(graph: Graph, flat: Geometry, old: Node, g: Geometry, value: Node) -> Node:
    """The flat value ``old`` with ``value`` written at ``g``."""
    value = without_bits(graph, g, value)
    if _is_all(flat, g):
        if len(g.shape) != 1:
            value = graph.view(aten.reshape.default, value, [-1])
        if flat.dtype == g.dtype:
            return value
        value = graph.like(value, aten.clone.default, value, memory_format=torch.contiguous_format)
        return graph.like(value, aten.view.dtype, value, flat.dtype)
    base = reinterpret(graph, old, flat.dtype, g.dtype, flat.shape[0])
    count = flat.shape[0] * flat.dtype.itemsize // g.dtype.itemsize
    if g.may_overlap_itself:
        value = _scatter_overlapping(graph, base, g, value, count)
    else:
        if flat.dtype != g.dtype:
            base = graph.like(base, aten.clone.default, base)
        value = graph.like(base, aten.as_strided_scatter.default, base, value, [*g.shape], [*g.stride], g.offset)
    if flat.dtype == g.dtype:
        return value
    value = graph.like(value, aten.view.dtype, value, flat.dtype)
    kept = count * g.dtype.itemsize // flat.dtype.itemsize
    if same(kept, flat.shape[0]):
        return value
    return graph.like(value, aten.cat.default, [value, graph.like(old, aten.slice.Tensor, old, 0, kept)])


def _scatter_overlapping(graph: Graph, base: Node, g: Geometry, value: Node, count: Size) -> Node:
    """Where several elements share an address, the one that the write changed wins; eager leaves more to chance."""
    places = graph.like(base, aten.arange.default, count, device=base.device)
    old, places = (
        graph.like(base, aten.as_strided.default, x, [*g.shape], [*g.stride], g.offset) for x in (base, places)
    )
    changed = graph.like(base, aten.ne.Tensor, value, old)
    places = graph.like(base, aten.where.ScalarOther, changed, places, count)
    places = graph.like(base, aten.reshape.default, places, [-1])
    flat = graph.like(base, aten.reshape.default, value, [-1])
    wider = graph.like(base, aten.scatter.src, pad(graph, base, 1, g.dtype), 0, places, flat)
    return graph.like(base, aten.clone.default, graph.like(base, aten.slice.Tensor, wider, 0, 0, count))
