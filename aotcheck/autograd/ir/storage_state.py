"""What is known of one storage: the windows met on it, how each is derived from another, and what each held when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aotcheck.autograd.ir.trace import NO_KWARGS, Geometry, Value

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
INVERTIBLE = RESHAPES | {
    aten.transpose.int,
    aten.t.default,
    aten.permute.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.diagonal.default,
    aten.unbind.int,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    aten.view_as_real.default,
    aten.view_as_complex.default,
    aten._conj.default,
    aten._neg_view.default,
}
SPLITS = {
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
}
WINDOW = "window"  # a view cut from a flat value by its geometry


class View:
    """One geometry of a storage: how it is derived from ``parent``, and the value it had at ``version``.

    ``results`` are the geometries of everything that the op gives where it gives several views.
    """

    __slots__ = ("args", "geometry", "index", "kwargs", "op", "parent", "results", "state", "value", "version")

    def __init__(self, state: StorageState, geometry: Geometry) -> None:
        self.state = state
        self.geometry = geometry
        self.parent: View | None = None
        self.op: Any = None
        self.args: tuple[Any, ...] = ()
        self.kwargs = NO_KWARGS
        self.index: int | None = None
        self.results: list[Geometry] | None = None
        self.value: Value | None = None
        self.version = -1

    def derive_from(
        self,
        parent: View,
        op: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        index: int | None = None,
    ) -> None:
        """From now on the view is what ``op`` makes of ``parent``, as result ``index`` if of several."""
        self.parent, self.op, self.args, self.kwargs, self.index = parent, op, args, kwargs or NO_KWARGS, index

    @property
    def fits(self) -> bool:
        """Whether the storage still holds all of the view."""
        g = self.geometry
        return 0 in g.shape or g.elements_reached * g.dtype.itemsize <= self.state.storage.nbytes()

    @property
    def in_whole_elements(self) -> bool:
        """Whether the memory behind the view is known to hold a whole number of its elements, in the graph too.

        Ops that copy all the memory behind their operand, those that write a part of it functionally, raise otherwise.
        """
        size, view = self.geometry.dtype.itemsize, self
        while view.parent is not None:
            view = view.parent
            if view.geometry.dtype.itemsize < size:
                return False
        return not self.state.nbytes % size

    @property
    def invertible(self) -> bool:
        """Whether a write to this view can be carried to its parent by an op of its own."""
        if self.op is WINDOW or self.op in INVERTIBLE:
            return True
        return (
            self.op is aten.expand.default
            and self.parent is not None
            and self.geometry.numel == self.parent.geometry.numel
        )


NOTHING: list[tuple[View, Value, int]] = []
"""What is pending of a storage that nobody writes; it is of all of them, and stays empty."""


class StorageState:
    """One storage: its views by geometry, its roots (several only if an input's, never written), pending writes."""

    __slots__ = (
        "device",
        "epoch",
        "flat",
        "flushed",
        "has_room",
        "lost",
        "nbytes",
        "pending",
        "reached_beyond",
        "rest",
        "roots",
        "sized",
        "source",
        "storage",
        "version",
        "views",
        "written",
    )

    def __init__(self, storage: torch.UntypedStorage, device: torch.device, epoch: int = 0) -> None:
        self.storage = storage  # kept alive: its address is its name
        self.epoch = epoch  # see StorageTable.begin_epoch
        self.device = device
        self.nbytes = storage.nbytes()
        self.version = 0
        self.written = 0  # when it last was
        self.flushed = 0
        self.views: dict[Geometry, View] = {}
        self.roots: list[View] = []
        self.flat: View | None = None
        self.pending = NOTHING
        self.lost: View | None = None  # all it held before it last shrank: see Note [Lost memory]
        self.sized = False  # whether its size is not that of the tensor for which it was made
        self.reached_beyond = False  # whether set_ left a tensor strides that reach beyond it
        self.has_room = False  # whether the op that made it left more room than its result needs: see Note [Room]
        self.rest: Callable[[], Value] | None = None  # what was in that room, if that is known
        self.source: Any = None  # for an input's storage: where the runtime finds a tensor on it

    def snapshot(self) -> Callable[[], None]:
        """What brings the state back to what it is now, as long as its storage keeps its size."""
        flat, flushed, pending, roots, version = (
            self.flat,
            self.flushed,
            list(self.pending),
            list(self.roots),
            self.version,
        )
        views = {g: (v, [getattr(v, name) for name in View.__slots__]) for g, v in self.views.items()}

        def restore() -> None:
            self.flat, self.flushed, self.pending, self.roots, self.version = flat, flushed, pending, roots, version
            self.views = {g: v for g, (v, _) in views.items()}
            for v, fields in views.values():
                for name, value in zip(View.__slots__, fields, strict=True):
                    setattr(v, name, value)

        return restore

    @property
    def is_input(self) -> bool:
        """Whether the caller brought the storage, rather than the function made it."""
        return self.source is not None


def known_at(view: View | None, version: int) -> bool:
    """Whether the value of ``view``, or of one that it is derived from, is at hand as of ``version``."""
    while view is not None:
        if view.version == version:
            return True
        view = view.parent
    return False
