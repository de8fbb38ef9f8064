"""The whole of a storage in one dimension: how it is made, windows read from it and written into it.

Note [Flat values]
Where a derivation has no inverse (overlapping windows, ``as_strided``, other dtypes, a window that reaches beyond its
parent) the storage gets a *flat* value, the whole of it in one dimension, which becomes the root of all its views.
Reading a view from it is ``as_strided``, writing is ``as_strided_scatter``. A flat value is contiguous and starts at
its own storage's beginning, by construction: ``as_strided`` counts from there. For an input it is a placeholder of its
own, which the runtime fills with the real storage. Its elements are those of the storage's tensors, or bytes where
these differ or the storage does not hold a whole number of them.
"""

from __future__ import annotations

import torch

from aotcheck.autograd.ir.emit import Emitter
from aotcheck.autograd.ir.storage_state import StorageState, View
from aotcheck.autograd.ir.trace import Geometry, Value, flat_geometry

aten = torch.ops.aten


def flat_of_root(emit: Emitter, state: StorageState, root: View) -> tuple[View, Value]:
    """The flat view of a storage made inside, and its value: what ``root`` holds, in one dimension."""
    geometry, value = root.geometry, root.value
    assert value is not None
    if geometry.conj:
        value = emit.op(value, aten._conj_physical.default, emit.op(value, aten._conj.default, value))
    if geometry.neg:
        value = emit.op(value, aten.neg.default, value)
    dtype = geometry.dtype
    total, odd = divmod(state.nbytes, dtype.itemsize)
    lies = flat_geometry(state.nbytes, dtype)
    order = geometry.dense_order
    if order is not None and geometry.offset == 0 and geometry.numel <= total:
        if order != list(range(len(order))):
            value = emit.op(value, aten.permute.default, value, order)
        value = emit.op(value, aten.reshape.default, value, [-1])
        # A clone keeps the stride of a single element, whatever it is; another dtype wants it to be 1.
        value = emit.op(value, aten.clone.default, value, memory_format=torch.contiguous_format)
        if total > geometry.numel and state.rest is not None:
            value = emit.op(value, aten.cat.default, [value, state.rest()])
        elif total > geometry.numel:
            value = pad(emit, value, total - geometry.numel, dtype)
    else:
        zeros = emit.op(value, aten.zeros.default, [total], dtype=dtype, device=state.device)
        value = emit.op(
            value,
            aten.as_strided_scatter.default,
            zeros,
            value,
            list(geometry.shape),
            list(geometry.stride),
            geometry.offset,
        )
    if odd:
        value = pad(emit, in_bytes(emit, value, lies), odd, torch.uint8)
        lies = flat_geometry(state.nbytes, torch.uint8)
    return View(state, lies), value


def in_bytes(emit: Emitter, value: Value, geometry: Geometry) -> Value:
    """The flat value ``value``, which lies as ``geometry``, as the bytes that it is made of."""
    (count,) = geometry.shape
    return reinterpret(emit, value, geometry.dtype, torch.uint8, count)


def pad(emit: Emitter, value: Value, count: int, dtype: torch.dtype) -> Value:
    """``value`` with ``count`` more elements, whose content eager leaves undefined."""
    tail = emit.op(value, aten.zeros.default, [count], dtype=dtype, device=value.device)
    return emit.op(value, aten.cat.default, [value, tail])


def reinterpret(emit: Emitter, value: Value, source: torch.dtype, target: torch.dtype, count: int) -> Value:
    """A contiguous one-dimensional value of ``count`` elements seen as another dtype."""
    if source == target:
        return value
    if source.itemsize * count % target.itemsize:
        value = emit.viewop(
            aten.slice.Tensor,
            value,
            0,
            0,
            source.itemsize * count // target.itemsize * target.itemsize // source.itemsize,
        )
    if value.geometry is not None and value.geometry.shape == (1,) and value.geometry.stride != (1,):
        # Of a single element the stride says nothing, but torch asks for it.
        value = emit.viewop(aten.unsqueeze.default, emit.viewop(aten.view.default, value, []), 0)
    return emit.viewop(aten.view.dtype, value, target)


def gather(emit: Emitter, flat: View, value: Value, g: Geometry) -> Value:
    """The window ``g`` of a flat value."""
    total, dtype = flat.geometry.shape[0], flat.geometry.dtype
    value = reinterpret(emit, value, dtype, g.dtype, total)
    if g.offset == 0 and g.is_contiguous and g.numel * g.dtype.itemsize == total * dtype.itemsize:
        if len(g.shape) != 1:
            value = emit.viewop(aten.view.default, value, list(g.shape))
    else:
        value = emit.viewop(aten.as_strided.default, value, list(g.shape), list(g.stride), g.offset)
    if g.conj:
        value = emit.viewop(aten._conj.default, value)
    if g.neg:
        value = emit.viewop(aten._neg_view.default, value)
    return value


def scatter(emit: Emitter, flat: View, old: Value, g: Geometry, value: Value) -> Value:
    """The flat value ``old`` with its window ``g`` replaced by ``value``."""
    total, dtype = flat.geometry.shape[0], flat.geometry.dtype
    if g.neg:
        value = emit.op(value, aten.neg.default, value)
    if g.conj:
        value = emit.op(value, aten._conj_physical.default, value)
    if g.offset == 0 and g.is_contiguous and g.numel * g.dtype.itemsize == total * dtype.itemsize:
        if dtype == g.dtype:
            return value if len(g.shape) == 1 else emit.viewop(aten.reshape.default, value, [-1])
        value = emit.op(value, aten.reshape.default, value, [-1])
        value = emit.op(value, aten.clone.default, value, memory_format=torch.contiguous_format)
        return emit.op(value, aten.view.dtype, value, dtype)
    base = reinterpret(emit, old, dtype, g.dtype, total)
    count = total * dtype.itemsize // g.dtype.itemsize
    if g.may_self_overlap:
        value = scatter_overlapping(emit, base, g, value, count)
    else:
        if dtype != g.dtype:
            base = emit.op(base, aten.clone.default, base)
        value = emit.op(base, aten.as_strided_scatter.default, base, value, list(g.shape), list(g.stride), g.offset)
    if dtype != g.dtype:
        value = emit.op(value, aten.view.dtype, value, dtype)
        kept = count * g.dtype.itemsize // dtype.itemsize
        if kept < total:
            value = emit.op(value, aten.cat.default, [value, emit.op(old, aten.slice.Tensor, old, 0, kept)])
    return value


def scatter_overlapping(emit: Emitter, base: Value, g: Geometry, value: Value, count: int) -> Value:
    """Where several elements share an address, the one that the write changed wins.

    Eager leaves more than one such to chance.
    """
    old = emit.op(base, aten.as_strided.default, base, list(g.shape), list(g.stride), g.offset)
    places = emit.op(base, aten.arange.default, count, device=base.device)
    places = emit.op(base, aten.as_strided.default, places, list(g.shape), list(g.stride), g.offset)
    changed = emit.op(base, aten.ne.Tensor, value, old)
    places = emit.op(base, aten.where.ScalarOther, changed, places, count)
    room = pad(emit, base, 1, g.dtype)
    flat_places = emit.op(base, aten.reshape.default, places, [-1])
    flat_value = emit.op(base, aten.reshape.default, value, [-1])
    room = emit.op(base, aten.scatter.src, room, 0, flat_places, flat_value)
    return emit.op(base, aten.clone.default, emit.op(base, aten.slice.Tensor, room, 0, 0, count))
