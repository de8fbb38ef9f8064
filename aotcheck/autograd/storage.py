"""What every storage holds at every moment of the trace, as functional values.

Note [Values by storage and geometry]
A tensor object says little: autograd unpacks saved variables to other objects on the same memory, and ``.data =`` swaps
what an object refers to without telling anyone. What does not lie is the storage and where in it a tensor lies. So each
storage has a version, and one ``View`` per geometry met, each knowing from which other view it was made and by which
op, and holding the value last read and the version it belongs to. Reading a view whose value is old replays that
derivation from its parent. Writing makes a new version and notes the write; only when another view is read is the write
carried up to the root, by the inverse of each derivation on the way.

Note [Flat values]
Where a derivation has no inverse (overlapping windows, ``as_strided``, other dtypes, a window that reaches beyond its
parent) the storage gets a *flat* value, the whole of it in one dimension, which becomes the root of all its views.
Reading a view from it is ``as_strided``, writing is ``as_strided_scatter``. A flat value is contiguous and starts at
its own storage's beginning, by construction: ``as_strided`` counts from there. For an input it is a placeholder of its
own, which the runtime fills with the real storage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.trace import Geometry, Trace, Value, disjoint, flat_geometry, geometry_of, getitem

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
_INVERTIBLE = RESHAPES | {
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
_SPLITS = {
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
}
WINDOW = "window"  # a view cut from a flat value by its geometry


class View:
    """One geometry of a storage: how it is derived from ``parent``, and the value it had at ``version``."""

    __slots__ = ("args", "geometry", "index", "kwargs", "op", "parent", "state", "value", "version")

    def __init__(self, state: StorageState, geometry: Geometry) -> None:
        self.state = state
        self.geometry = geometry
        self.parent: View | None = None
        self.op: Any = None
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}
        self.index: int | None = None
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
        self.parent, self.op, self.args, self.kwargs, self.index = parent, op, args, kwargs or {}, index

    @property
    def fits(self) -> bool:
        """Whether the storage still holds all of the view."""
        g = self.geometry
        return 0 in g.shape or g.elements_reached * g.dtype.itemsize <= self.state.storage.nbytes()

    @property
    def invertible(self) -> bool:
        """Whether a write to this view can be carried to its parent by an op of its own."""
        if self.op is WINDOW or self.op in _INVERTIBLE:
            return True
        return (
            self.op is aten.expand.default
            and self.parent is not None
            and self.geometry.numel == self.parent.geometry.numel
        )


class StorageState:
    """One storage: its views by geometry, its roots (several only if an input's, never written), pending writes."""

    __slots__ = (
        "device",
        "epoch",
        "flat",
        "flushed",
        "nbytes",
        "pending",
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
        self.pending: list[tuple[View, Value, int]] = []
        self.sized = False  # whether its size is not that of the tensor for which it was made
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


class StorageTable:
    """All storages of one trace; reads and writes on them become operations of the functional program."""

    def __init__(self, trace: Trace, now: Callable[[], int]) -> None:
        self.trace = trace
        self.now = now
        self.states: dict[int, StorageState] = {}
        self.flat_inputs: list[tuple[Value, Any, torch.dtype]] = []
        self._epoch = 0
        self._first_write: Callable[[StorageState], None] | None = None
        self._multiple: dict[Any, Value] = {}  # results of multi-output views, by what they are computed from

    # -- lookup

    def state(self, t: Tensor) -> StorageState:
        """The state of the storage on which ``t`` lies now."""
        storage = _torch.storage_of(t)
        state = self.states.get(_torch.storage_address(storage))
        if state is None:
            state = self.states[_torch.storage_address(storage)] = StorageState(storage, t.device, self._epoch)
        return state

    def bind(self, t: Tensor, value: Value) -> View:
        """``t`` is a root of its storage and holds ``value``."""
        state, geometry = self.state(t), geometry_of(t)
        view = View(state, geometry)
        view.value, view.version = value, state.version
        state.views[geometry] = view
        state.roots.append(view)
        value.geometry, value.device = geometry, state.device
        return view

    def view(self, t: Tensor) -> View:
        """The view ``t`` is now; one made behind the tracer's back is cut from the flat value."""
        state, geometry = self.state(t), geometry_of(t)
        view = state.views.get(geometry)
        if view is None:
            if not state.roots and state.flat is None:
                raise UnsupportedError("unknown storage", "a tensor appeared whose storage no traced op made")
            view = View(state, geometry)
            view.derive_from(self.flat(state), WINDOW)
            state.views[geometry] = view
        return view

    # -- emitting

    def _op(self, like: Value, op: Any, *args: Any, **kwargs: Any) -> Value:
        v = self.trace.call(op, args, kwargs)
        v.device = like.device
        return v

    def _viewop(self, op: Any, value: Value, *args: Any, **kwargs: Any) -> Value:
        """An op whose result may share memory with ``value``."""
        v = self._op(value, op, value, *args, **kwargs)
        v.memory = value.memory
        return v

    # -- flat values

    def flat(self, state: StorageState) -> View:
        """The flat value's view; made on first need, and resized after the storage was."""
        if state.flat is None:
            self._make_flat(state)
        if state.storage.nbytes() != state.nbytes:
            self._resize_flat(state)
        assert state.flat is not None
        return state.flat

    def _make_flat(self, state: StorageState) -> None:
        self.flush(state)
        if state.is_input:
            dtypes = {r.geometry.dtype for r in state.roots}
            dtype = dtypes.pop() if len(dtypes) == 1 else torch.uint8
            if state.nbytes % dtype.itemsize:
                dtype = torch.uint8
            flat = View(state, flat_geometry(state.nbytes, dtype))
            value = self.trace.placeholder("", flat.geometry, state.device)
            self.flat_inputs.append((value, state.source, dtype))
            if state.version > 0:
                for r in state.roots:
                    assert r.value is not None
                    value = self._scatter(flat, value, r.geometry, r.value)
        else:
            flat, value = self._flat_of_root(state, state.roots[0])
        value.geometry, value.device = flat.geometry, state.device
        flat.value, flat.version = value, state.version
        for r in state.roots:
            r.derive_from(flat, WINDOW)
        state.roots, state.flat, state.flushed, state.pending = [flat], flat, state.version, []

    def _flat_of_root(self, state: StorageState, root: View) -> tuple[View, Value]:
        geometry, value = root.geometry, root.value
        assert value is not None
        if geometry.conj:
            value = self._op(value, aten._conj_physical.default, self._op(value, aten._conj.default, value))
        if geometry.neg:
            value = self._op(value, aten.neg.default, value)
        dtype = geometry.dtype
        if state.nbytes % dtype.itemsize:
            raise UnsupportedError("storage size", f"a storage of {state.nbytes} bytes holds {dtype}")
        total = state.nbytes // dtype.itemsize
        flat = View(state, flat_geometry(state.nbytes, dtype))
        order = geometry.dense_order
        if order is not None and geometry.offset == 0 and geometry.numel <= total:
            if order != list(range(len(order))):
                value = self._op(value, aten.permute.default, value, order)
            value = self._op(value, aten.clone.default, self._op(value, aten.reshape.default, value, [-1]))
            if total > geometry.numel:
                value = self._pad(value, total - geometry.numel, dtype)
        else:
            zeros = self._op(value, aten.zeros.default, [total], dtype=dtype, device=state.device)
            value = self._op(
                value,
                aten.as_strided_scatter.default,
                zeros,
                value,
                list(geometry.shape),
                list(geometry.stride),
                geometry.offset,
            )
        return flat, value

    def _pad(self, value: Value, count: int, dtype: torch.dtype) -> Value:
        """``value`` with ``count`` more elements, whose content eager leaves undefined."""
        tail = self._op(value, aten.zeros.default, [count], dtype=dtype, device=value.device)
        return self._op(value, aten.cat.default, [value, tail])

    def _resize_flat(self, state: StorageState) -> None:
        nbytes = state.storage.nbytes()
        self.flush(state)
        flat = state.flat
        assert flat is not None and flat.value is not None
        dtype = flat.geometry.dtype
        if nbytes % dtype.itemsize:
            raise UnsupportedError("storage size", f"a storage of {dtype} was resized to {nbytes} bytes")
        old, new = flat.geometry.shape[0], nbytes // dtype.itemsize
        if new > old:
            flat.value = self._pad(flat.value, new - old, dtype)
        elif new < old:
            flat.value = self._op(
                flat.value, aten.clone.default, self._op(flat.value, aten.slice.Tensor, flat.value, 0, 0, new)
            )
        flat.geometry = flat.value.geometry = flat_geometry(nbytes, dtype)
        state.sized = True
        if new < old:
            for view in state.views.values():  # what a view was cut from may reach beyond the storage by now
                if view is not flat:
                    view.derive_from(flat, WINDOW)
        state.nbytes = nbytes
        state.version += 1
        flat.version = state.flushed = state.version

    def _reinterpret(self, value: Value, source: torch.dtype, target: torch.dtype, count: int) -> Value:
        """A contiguous one-dimensional value of ``count`` elements seen as another dtype."""
        if source == target:
            return value
        if source.itemsize * count % target.itemsize:
            value = self._viewop(
                aten.slice.Tensor,
                value,
                0,
                0,
                source.itemsize * count // target.itemsize * target.itemsize // source.itemsize,
            )
        return self._viewop(aten.view.dtype, value, target)

    def _gather(self, flat: View, value: Value, g: Geometry) -> Value:
        """The window ``g`` of a flat value."""
        total, dtype = flat.geometry.shape[0], flat.geometry.dtype
        value = self._reinterpret(value, dtype, g.dtype, total)
        if g.offset == 0 and g.is_contiguous and g.numel * g.dtype.itemsize == total * dtype.itemsize:
            if len(g.shape) != 1:
                value = self._viewop(aten.view.default, value, list(g.shape))
        else:
            value = self._viewop(aten.as_strided.default, value, list(g.shape), list(g.stride), g.offset)
        if g.conj:
            value = self._viewop(aten._conj.default, value)
        if g.neg:
            value = self._viewop(aten._neg_view.default, value)
        return value

    def _scatter(self, flat: View, old: Value, g: Geometry, value: Value) -> Value:
        """The flat value ``old`` with its window ``g`` replaced by ``value``."""
        total, dtype = flat.geometry.shape[0], flat.geometry.dtype
        if 0 in g.shape:
            return old
        if g.neg:
            value = self._op(value, aten.neg.default, value)
        if g.conj:
            value = self._op(value, aten._conj_physical.default, value)
        if g.offset == 0 and g.is_contiguous and g.numel * g.dtype.itemsize == total * dtype.itemsize:
            if dtype == g.dtype:
                return value if len(g.shape) == 1 else self._viewop(aten.reshape.default, value, [-1])
            value = self._op(value, aten.reshape.default, value, [-1])
            value = self._op(value, aten.clone.default, value, memory_format=torch.contiguous_format)
            return self._op(value, aten.view.dtype, value, dtype)
        base = self._reinterpret(old, dtype, g.dtype, total)
        count = total * dtype.itemsize // g.dtype.itemsize
        if g.may_self_overlap:
            value = self._scatter_overlapping(base, g, value, count)
        else:
            if dtype != g.dtype:
                base = self._op(base, aten.clone.default, base)
            value = self._op(
                base, aten.as_strided_scatter.default, base, value, list(g.shape), list(g.stride), g.offset
            )
        if dtype != g.dtype:
            value = self._op(value, aten.view.dtype, value, dtype)
            kept = count * g.dtype.itemsize // dtype.itemsize
            if kept < total:
                value = self._op(value, aten.cat.default, [value, self._op(old, aten.slice.Tensor, old, 0, kept)])
        return value

    def _scatter_overlapping(self, base: Value, g: Geometry, value: Value, count: int) -> Value:
        """Where several elements share an address, the one that the write changed wins.

        Eager leaves more than one such to chance.
        """
        old = self._op(base, aten.as_strided.default, base, list(g.shape), list(g.stride), g.offset)
        places = self._op(base, aten.arange.default, count, device=base.device)
        places = self._op(base, aten.as_strided.default, places, list(g.shape), list(g.stride), g.offset)
        changed = self._op(base, aten.ne.Tensor, value, old)
        places = self._op(base, aten.where.ScalarOther, changed, places, count)
        room = self._pad(base, 1, g.dtype)
        flat_places = self._op(base, aten.reshape.default, places, [-1])
        flat_value = self._op(base, aten.reshape.default, value, [-1])
        room = self._op(base, aten.scatter.src, room, 0, flat_places, flat_value)
        return self._op(base, aten.clone.default, self._op(base, aten.slice.Tensor, room, 0, 0, count))

    # -- reading

    def read(self, t: Tensor) -> Value:
        """The value of ``t`` now."""
        return self.read_view(self.view(t))

    def read_view(self, view: View) -> Value:
        """The value of ``view`` now; computing it may carry pending writes to the root."""
        state = view.state
        if state.storage.nbytes() != state.nbytes:
            self.flat(state)
        if view.version == state.version:
            assert view.value is not None
            return view.value
        since = max(view.version, state.flushed)  # the last version of which its value is at hand
        beside = all(v <= since or disjoint(w.geometry, view.geometry) for w, _, v in state.pending)
        if beside and view.parent is not None and 0 not in view.geometry.shape and _known_at(view, since):
            # What was written since lies beside it. (Of a root that is so if nothing was written: pending writes want
            # the root as it was before them.)
            view.value, view.version = self._at(view, since), state.version
            return view.value
        self.flush(state)
        return self._at(view, state.version)

    def _at(self, view: View, version: int) -> Value:
        if view.version == version:
            assert view.value is not None
            return view.value
        if view.parent is None:
            raise AssertionError(f"a root of version {view.version} was asked for version {version}")
        value = self._derive(view, self._at(view.parent, version))
        if view.version <= version:
            view.value, view.version = value, version
        return value

    def _derive(self, view: View, parent: Value) -> Value:
        if view.op is WINDOW:
            assert view.parent is not None
            value = self._gather(view.parent, parent, view.geometry)
        elif view.index is None:
            value = self._viewop(view.op, parent, *view.args, **view.kwargs)
        else:
            key = (parent, view.op, repr(view.args), repr(view.kwargs))
            all_results = self._multiple.get(key)
            if all_results is None:
                all_results = self._multiple[key] = self._viewop(view.op, parent, *view.args, **view.kwargs)
            value = self._viewop(getitem, all_results, view.index)
        value.geometry = view.geometry
        return value

    # -- writing

    def begin_epoch(self, first_write: Callable[[StorageState], None]) -> None:
        """From now on ``first_write`` is called before the first write to each storage that there is already."""
        self._epoch += 1
        self._first_write = first_write

    def end_epoch(self) -> None:
        """It is called no more."""
        self._first_write = None

    def replace(self, state: StorageState, value: Value) -> None:
        """The root of ``state``, which has just one and no pending writes, holds ``value`` from now on."""
        (root,) = state.roots
        state.version += 1
        root.value, root.version, state.flushed = value, state.version, state.version

    def write(self, view: View, value: Value) -> None:
        """``view`` holds ``value`` from now on, and so does whatever shares its memory."""
        state = view.state
        if self._first_write is not None and state.epoch < self._epoch:
            state.epoch = self._epoch
            self._first_write(state)
        if state.is_input and len(state.roots) > 1:
            self.flat(state)
        step: View | None = view
        while step is not None and step is not state.flat:
            overlapping = step.geometry.may_self_overlap and not (step is view and step.op is WINDOW)
            if overlapping or (step.parent is not None and not step.invertible):
                # Note [Flat values]: this write cannot climb its chain, so it goes to the flat value at once.
                view.derive_from(self.flat(state), WINDOW)
                break
            step = step.parent
        state.version += 1
        state.written = self.now()
        view.value, view.version = value, state.version
        if value.geometry is None:
            value.geometry = view.geometry
        if state.pending and state.pending[-1][0] is view:
            state.pending[-1] = (view, value, state.version)
        else:
            state.pending.append((view, value, state.version))
        if view.parent is None:
            state.pending = []
            state.flushed = state.version
        elif view.geometry.may_self_overlap:
            self.flush(state)
            view.version = -1  # elements that share an address hold one value, whichever was written to each

    def flush(self, state: StorageState) -> None:
        """Carry every pending write up to the root."""
        pending, state.pending = state.pending, []
        before = state.flushed
        for view, value, version in pending:
            step = view
            while step.parent is not None:
                value = self._invert(step, value, before)
                step = step.parent
                if step.version <= version:
                    step.value, step.version = value, version
                if value.geometry is None:
                    value.geometry = step.geometry
            before = version
        state.flushed = state.version

    def _invert(self, view: View, value: Value, before: int) -> Value:
        """The parent's value after ``view`` was written, ``before`` being the version of the parent to write into."""
        op, parent, args = view.op, view.parent, view.args
        assert parent is not None
        if op is WINDOW:
            return self._scatter(parent, self._at(parent, before), view.geometry, value)
        if op in RESHAPES or op is aten.expand.default:
            both = view.geometry.is_contiguous and parent.geometry.is_contiguous
            return self._viewop(aten.view.default if both else aten.reshape.default, value, list(parent.geometry.shape))
        if op is aten.transpose.int or op is aten.t.default:
            return self._viewop(op, value, *args)
        if op is aten.permute.default:
            inverse = [0] * len(args[0])
            for i, d in enumerate(args[0]):
                inverse[d % len(inverse)] = i
            return self._viewop(op, value, inverse)
        if op is aten._conj.default:
            return self._op(value, aten._conj_physical.default, value)
        if op is aten._neg_view.default:
            return self._op(value, aten.neg.default, value)
        if op is aten.view_as_real.default:
            order = view.geometry.dense_order
            kept = order is not None and order[-1] == len(order) - 1  # real and imaginary parts lie together
            layout = torch.preserve_format if kept else torch.contiguous_format
            copy = self._op(value, aten.clone.default, value, memory_format=layout)
            return self._op(value, aten.view_as_complex.default, copy)
        if op is aten.view_as_complex.default:
            return self._op(value, aten.view_as_real.default, self._op(value, aten.resolve_conj.default, value))
        whole = self._at(parent, before)
        if op is aten.select.int:
            return self._op(value, aten.select_scatter.default, whole, value, *args)
        if op is aten.slice.Tensor:
            return self._op(value, aten.slice_scatter.default, whole, value, *args)
        if op is aten.diagonal.default:
            return self._op(value, aten.diagonal_scatter.default, whole, value, *args, **view.kwargs)
        if op is aten.unbind.int:
            return self._op(value, aten.select_scatter.default, whole, value, args[0] if args else 0, view.index)
        if op in _SPLITS:
            assert view.index is not None
            dim = args[1] if len(args) > 1 else 0
            start = args[0] * view.index if isinstance(args[0], int) else sum(args[0][: view.index])
            return self._op(
                value, aten.slice_scatter.default, whole, value, dim, start, start + view.geometry.shape[dim]
            )
        raise AssertionError(f"no inverse for {op}")


def _known_at(view: View | None, version: int) -> bool:
    """Whether the value of ``view``, or of one that it is derived from, is at hand as of ``version``."""
    while view is not None:
        if view.version == version:
            return True
        view = view.parent
    return False
