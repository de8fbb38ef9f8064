"""What is known of one storage: the geometries met on it, and from which other each can be derived.

Note [Values by storage and geometry]
A tensor object says little: autograd unpacks saved tensors to other objects on the same memory, and ``.data =`` swaps
what an object refers to. Only the storage, and a tensor's place in it, can be relied on. So each storage has a
version, and one ``View`` per geometry met: from which other view which op made it, the value last read through it, and
the version that value belongs to. To read a view whose value is old is to repeat its op on its parent's value. A write
makes a new version and is noted; only when another view is read is it carried to the root, by the inverse of each op on
the way (at the end of this file).

The flat value of a storage is all of it in one dimension; geometries are cut from it and written into it. It is
contiguous and starts at its storage's beginning, since ``as_strided`` counts from there. For a caller's storage it is
a placeholder of its own. Its elements are those of the storage's tensors, or bytes where these differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.graph import NO_KWARGS, Graph, Node
from aotcheck.autograd2.ir.meta import Geometry, row_major
from aotcheck.autograd2.ir.size import Size, at_least, is_static, same
from aotcheck.autograd2.trace.gate import Event, refuse

aten = torch.ops.aten

_WHOLE = ("view", "_unsafe_view", "reshape", "_reshape_alias", "unsqueeze", "squeeze", "alias", "detach")
RESHAPES = frozenset({*(getattr(aten, name).default for name in _WHOLE), aten.squeeze.dim, aten.squeeze.dims})
"""Views that have all the elements of what they are views of, in the same order."""

UNSAFE_SPLITS = frozenset({aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default})
"""Their results share memory with the operand, though autograd is not told."""
UNSAFE = UNSAFE_SPLITS | {aten._unsafe_view.default}
"""Views that count versions apart from what they are views of."""

INVERTIBLE = RESHAPES | {aten.view_as_real.default, aten.view_as_complex.default}
INVERTIBLE |= {aten.transpose.int, aten.t.default, aten.permute.default, aten._conj.default, aten._neg_view.default}
INVERTIBLE |= {aten.select.int, aten.slice.Tensor, aten.diagonal.default}
"""Ops whose result, when written, can be carried to their operand by another op."""

WINDOW = "window"
"""In place of an op: the view is cut from the flat value of its storage by its geometry."""


def part_of(op: Any, args: Sequence[Any], parts: Sequence[Geometry], k: int) -> tuple[Any, tuple[Any, ...]]:
    """The op and its arguments that make the ``k``-th of several views alone."""
    if op is aten.unbind.int:
        return aten.select.int, (args[0] if args else 0, k)
    dim = args[1] if len(args) > 1 else 0
    start = sum(g.shape[dim] for g in parts[:k])
    return aten.slice.Tensor, (dim, start, start + parts[k].shape[dim])


class View:
    """One geometry on a storage: what ``op`` makes of ``parent``.

    ``value`` is what it held at ``version`` of the storage; a root has no parent.
    """

    __slots__ = ("args", "geometry", "kwargs", "op", "parent", "state", "value", "version")

    def __init__(self, state: StorageState, geometry: Geometry) -> None:
        self.state = state
        self.geometry = geometry
        self.value: Node | None = None
        self.version = -1
        self.derive(None, None)

    def derive(
        self, parent: View | None, op: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = NO_KWARGS
    ) -> None:
        """From now on the view is what ``op`` makes of ``parent``."""
        dtypes = {v.geometry.dtype for v in (self, parent) if v is not None and op is WINDOW}
        if len(dtypes) > 1 and any(is_odd(self.state.nbytes, dtype) for dtype in dtypes):
            refuse(Event.ODD, str(self.geometry.dtype))
        self.parent, self.op, self.args, self.kwargs = parent, op, args, kwargs

    @property
    def invertible(self) -> bool:
        """Whether a write to it can be carried to its parent by an op of its own."""
        if self.op is aten.expand.default and self.parent is not None:
            return same(self.geometry.numel, self.parent.geometry.numel)
        return self.op is WINDOW or self.op in INVERTIBLE

    @property
    def fits(self) -> bool:
        """Whether its storage still has all its memory."""
        unsure = not is_static((self.geometry.end, self.state.nbytes))
        return (unsure and self.state.lost is None) or not self.geometry.is_beyond(self.state.nbytes)


@dataclass(eq=False)
class StorageState:
    """One storage, kept alive because its address is its name.

    Attributes:
        source: of a storage that the caller brought, the input (by position) that lies on it.
        roots: views with no parent. Several only where a caller's storage was not written yet, or they are ``apart``.
        apart: whether no two roots share memory; None where nobody asked.
        flat: the whole storage in one dimension, once some geometry can only be cut from that.
        pending: writes that were not carried to the root yet, with the version each made.
        lost: the flat view before the storage last shrank.
        touched: whether an empty part of it was written, which autograd records.
        own_counter: whether autograd may have saved a tensor on it that counts versions apart from others.
        uncounted: whether eager saved tensors on it, an input's, with counters that nobody else has.
        needed: whether a backward reads it.
        in_lists: whether autograd recorded a write to a list of which several tensors lie on it.
        sequence: the number of the node of autograd after the last write.
        backwards_begun: how many backwards had begun when it was made.
    """

    storage: torch.UntypedStorage
    device: torch.device
    nbytes: Size
    source: int | None = None
    version: int = field(default=0, init=False)
    flushed: int = field(default=0, init=False)
    views: dict[Geometry, View] = field(default_factory=dict, init=False)
    roots: list[View] = field(default_factory=list, init=False)
    apart: bool | None = field(default=None, init=False)
    flat: View | None = field(default=None, init=False)
    pending: list[tuple[View, Node, int]] = field(default_factory=list, init=False)
    lost: View | None = field(default=None, init=False)
    resized: bool = field(default=False, init=False)
    touched: bool = field(default=False, init=False)
    own_counter: bool = field(default=False, init=False)
    uncounted: bool = field(default=False, init=False)
    needed: bool = field(default=False, init=False)
    in_lists: bool = field(default=False, init=False)
    sequence: int = field(default=0, init=False)
    backwards_begun: int = 0

    @property
    def is_input(self) -> bool:
        """Whether the caller brought it."""
        return self.source is not None


def is_odd(nbytes: Size, dtype: torch.dtype) -> bool:
    """Whether so many bytes are no whole number of elements."""
    return not at_least(0, nbytes % dtype.itemsize)


def flat_geometry(nbytes: Size, dtype: torch.dtype) -> Geometry:
    """A storage in one dimension, without the bytes at its end that are no whole element."""
    return row_major((nbytes // dtype.itemsize,), dtype)


def flat_of_root(graph: Graph, state: StorageState, root: View) -> tuple[View, Node]:
    """The flat view of a storage that the function made, and its value: what ``root`` holds, in one dimension."""
    g, value, lies = root.geometry, root.value, flat_geometry(state.nbytes, root.geometry.dtype)
    assert value is not None
    order = g.dense_order
    if order is None or not (same(g.offset, 0) and same(lies.numel, g.numel)):
        refuse(Event.UNKNOWN_STORAGE, "memory beside what an op gave")
    value = without_bits(graph, g, value)
    if order != list(range(len(order))):
        value = graph.like(value, aten.permute.default, value, order)
    value = graph.like(value, aten.reshape.default, value, [-1])
    value = graph.like(value, aten.clone.default, value, memory_format=torch.contiguous_format)
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
    for d in reversed(range(len(g.shape))):
        if g.stride[d] == 0 and g.shape[d] != 1:  # all of these elements are one
            value = graph.like(value, aten.clone.default, graph.view(aten.select.int, value, d, 0))
            g = g._replace(shape=g.shape[:d] + g.shape[d + 1 :], stride=g.stride[:d] + g.stride[d + 1 :])
    if not _is_all(flat, g):
        if flat.dtype != g.dtype:
            old = graph.like(old, aten.clone.default, graph.view(aten.view.dtype, old, g.dtype))
        value = graph.like(value, aten.as_strided_scatter.default, old, value, [*g.shape], [*g.stride], g.offset)
    elif len(g.shape) != 1:
        value = graph.view(aten.reshape.default, value, [-1])
    if flat.dtype == g.dtype:
        return value
    value = graph.like(value, aten.clone.default, value, memory_format=torch.contiguous_format)
    return graph.like(value, aten.view.dtype, value, flat.dtype)


def inverse(graph: Graph, view: View, value: Node, before: Callable[[], Node]) -> Node:
    """The parent's value once ``value`` was written to ``view``; ``before`` gives what the parent held till then."""
    op, parent, args = view.op, view.parent, view.args
    assert parent is not None
    if op is WINDOW:
        return scatter(graph, parent.geometry, before(), view.geometry, value)
    if op in RESHAPES or op is aten.expand.default:
        contiguous = view.geometry.is_contiguous and parent.geometry.is_contiguous
        return graph.view(aten.view.default if contiguous else aten.reshape.default, value, [*parent.geometry.shape])
    if op is aten.transpose.int or op is aten.t.default:
        return graph.view(op, value, *args)
    if op is aten.permute.default:
        dims = [d % len(args[0]) for d in args[0]]
        return graph.view(op, value, [dims.index(d) for d in range(len(dims))])
    if op is aten._conj.default:
        return graph.like(value, aten._conj_physical.default, value)
    if op is aten._neg_view.default:
        return graph.like(value, aten.neg.default, value)
    if op is aten.view_as_real.default:
        order = parent.geometry.dense_order or range(len(parent.geometry.shape))
        value = graph.view(aten.permute.default, value, [*order, len(order)])
        value = graph.like(value, aten.clone.default, value, memory_format=torch.contiguous_format)
        value = graph.like(value, aten.view_as_complex.default, value)
        return graph.view(aten.permute.default, value, [order.index(d) for d in range(len(order))])
    if op is aten.view_as_complex.default:
        return graph.like(value, aten.view_as_real.default, graph.like(value, aten.resolve_conj.default, value))
    scatter_op = getattr(aten, f"{_torch.op_name(op)}_scatter").default  # select's, slice's, diagonal's
    return graph.like(value, scatter_op, before(), value, *args, **view.kwargs)
