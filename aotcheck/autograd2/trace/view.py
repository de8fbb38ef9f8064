"""What is known of one storage: the geometries met on it, and from which other each can be derived.

Note [Values by storage and geometry]
A tensor object says little: autograd unpacks saved tensors to other objects on the same memory, and ``.data =`` swaps
what an object refers to. Only the storage, and a tensor's place in it, can be relied on. So each storage has a
version, and one ``View`` per geometry met: from which other view which op made it, the value last read through it, and
the version that value belongs to. To read a view whose value is old is to repeat its op on its parent's value. A write
makes a new version and is noted; only when another view is read is it carried to the root, by the inverse of each op on
the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from aotcheck.autograd2.ir.graph import NO_KWARGS, Node
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.ir.size import Size, same

aten = torch.ops.aten

RESHAPES = frozenset(
    {
        aten.view.default,
        aten._unsafe_view.default,
        aten.reshape.default,
        aten._reshape_alias.default,
        aten.unsqueeze.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.alias.default,
        aten.detach.default,
    }
)
"""Views that have all the elements of what they are views of, in the same order."""

UNSAFE_SPLITS = frozenset({aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default})
"""Their results share memory with the operand, though autograd is not told."""

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
        self.parent, self.op, self.args, self.kwargs = parent, op, args, kwargs

    @property
    def invertible(self) -> bool:
        """Whether a write to it can be carried to its parent by an op of its own."""
        if self.op is WINDOW or self.op in INVERTIBLE:
            return True
        if self.op is not aten.expand.default or self.parent is None:
            return False
        return same(self.geometry.numel, self.parent.geometry.numel)

    @property
    def fits(self) -> bool:
        """Whether its storage still has all its memory."""
        if self.state.lost is None and not (type(self.geometry.end) is int and type(self.state.nbytes) is int):
            return True
        return not self.geometry.is_beyond(self.state.nbytes)


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
        needed: whether a backward reads it.
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
    needed: bool = field(default=False, init=False)
    sequence: int = field(default=0, init=False)
    backwards_begun: int = 0

    @property
    def is_input(self) -> bool:
        """Whether the caller brought it."""
        return self.source is not None
