"""What every storage holds at every moment of the trace, as functional values.

Note [Values by storage and geometry]
A tensor object says little: autograd unpacks saved variables to other objects on the same memory, and ``.data =`` swaps
what an object refers to without telling anyone. What does not lie is the storage and where in it a tensor lies. So each
storage has a version, and one ``View`` per geometry met, each knowing from which other view it was made and by which
op, and holding the value last read and the version it belongs to. Reading a view whose value is old replays that
derivation from its parent. Writing makes a new version and notes the write; only when another view is read is the write
carried up to the root, by the inverse of each derivation on the way.

Note [Lost memory]
A storage may shrink, or be freed, while tensors on it are kept: by the caller, who sees that they reach beyond it, or
by autograd, for a backward before which somebody allocates that memory again and fills it as it was (FSDP does). To the
trace such tensors hold what they did when the storage last held them. The graph of the backward is made for that, and
reads the memory as it is then: see Note [Saved memory].
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.emit import Emitter
from aotcheck.autograd.ir.flat_values import flat_of_root, gather, in_bytes, pad, scatter
from aotcheck.autograd.ir.inverses import inverse
from aotcheck.autograd.ir.storage_state import NOTHING, WINDOW, StorageState, View, known_at
from aotcheck.autograd.ir.trace import (
    Geometry,
    Trace,
    Value,
    disjoint,
    flat_geometry,
    geometry_of,
    getitem,
    kept_geometry_of,
)
from aotcheck.autograd.replicas.sparse import SparseReplica

aten = torch.ops.aten


class StorageTable:
    """All storages of one trace; reads and writes on them become operations of the functional program."""

    def __init__(self, trace: Trace, now: Callable[[], int]) -> None:
        self.trace = trace
        self.emit = Emitter(trace)
        self.now = now
        self.states: dict[int, StorageState] = {}
        self.flat_inputs: list[tuple[Value, Any, torch.dtype]] = []
        self._epoch = 0
        self._first_write: Callable[[StorageState], None] | None = None
        self.sparse: dict[int, Value] = {}  # what sparse replicas hold, by id: see Note [Sparse tensors]
        self.sparse_states: dict[int, StorageState] = {}  # stand for the memory of those that are arguments, by id
        self.lent: dict[int, torch.UntypedStorage] = {}  # memory that sparse tensors have for their own, by address
        self.opaque = False  # whether there are replicas whose elements no trace can count
        self._multiple: dict[Any, Value] = {}  # results of multi-output views, by what they are computed from

    def __del__(self) -> None:
        """The trace is gone. Windows and states lead to each other; without this they would wait for the collector."""
        for state in self.states.values():
            state.views, state.roots = {}, []

    # -- lookup

    def state(self, t: Tensor) -> StorageState:
        """The state of the storage on which ``t`` lies now."""
        if type(t) is SparseReplica:
            return self.sparse_states[id(t)]
        storage = _torch.storage_of(t)
        state = self.states.get(_torch.storage_address(storage))
        if state is None:
            state = self.states[_torch.storage_address(storage)] = StorageState(storage, t.device, self._epoch)
        return state

    def bind(self, t: Tensor, value: Value, geometry: Geometry | None = None) -> View:
        """``t``, whose ``geometry`` may be known already, is a root of its storage and holds ``value``."""
        state, geometry = self.state(t), geometry or kept_geometry_of(t)
        view = View(state, geometry)
        view.value, view.version = value, state.version
        state.views[geometry] = view
        state.roots.append(view)
        value.geometry, value.device = geometry, state.device
        return view

    def bind_sparse(self, t: SparseReplica, value: Value) -> StorageState:
        """``t``, an argument, holds ``value``; a state that never changes stands for its memory."""
        value.sparse, value.device = t.geometry, t.device
        self.sparse[id(t)] = value
        self.opaque = True
        empty = _torch.storage_of(torch.empty(0, device=_torch.META))
        state = self.sparse_states[id(t)] = StorageState(empty, t.device, self._epoch)
        for storage in t.shares:
            self.lend(storage)
        return state

    def bind_new(self, t: Tensor, value: Value, geometry: Geometry, device: torch.device) -> None:
        """As ``bind``, where the storage of ``t`` is new."""
        storage = _torch.storage_of(t)
        state = self.states[_torch.storage_address(storage)] = StorageState(storage, device, self._epoch)
        view = state.views[geometry] = View(state, geometry)
        view.value, view.version = value, 0
        state.roots.append(view)
        value.geometry, value.device = geometry, device

    def view(self, t: Tensor, geometry: Geometry | None = None) -> View:
        """The view ``t`` is now, with its ``geometry`` if that is known already.

        One made behind the tracer's back is cut from the flat value.
        """
        state, geometry = self.state(t), geometry or geometry_of(t)
        if state.flat is None and len(state.roots) == 1 and state.roots[0].geometry == geometry:
            return state.roots[0]  # most are; to look up a geometry is to hash all of it
        view = state.views.get(geometry)
        if view is None:
            if not state.roots and state.flat is None:
                raise UnsupportedError("unknown storage", "a tensor appeared whose storage no traced op made")
            view = View(state, geometry)
            view.derive_from(self.flat(state), WINDOW)
            state.views[geometry] = view
        return view

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
            value = self.trace.placeholder(flat.geometry, state.device)
            self.flat_inputs.append((value, state.source, dtype))
            if state.version > 0:
                for r in state.roots:
                    assert r.value is not None
                    value = scatter(self.emit, flat, value, r.geometry, r.value)
        else:
            flat, value = flat_of_root(self.emit, state, state.roots[0])
        value.geometry, value.device = flat.geometry, state.device
        flat.value, flat.version = value, state.version
        for r in state.roots:
            r.derive_from(flat, WINDOW)
        state.roots, state.flat, state.flushed, state.pending = [flat], flat, state.version, NOTHING

    def _resize_flat(self, state: StorageState) -> None:
        nbytes = state.storage.nbytes()
        self.flush(state)
        flat = state.flat
        assert flat is not None and flat.value is not None
        whole, before = flat.value, flat.geometry
        dtype = before.dtype
        if nbytes % dtype.itemsize:
            dtype, flat.value = torch.uint8, in_bytes(self.emit, whole, before)
        old, new = state.nbytes // dtype.itemsize, nbytes // dtype.itemsize
        if new > old:
            flat.value = pad(self.emit, flat.value, new - old, dtype)
        elif new < old:
            flat.value = self.emit.op(
                flat.value, aten.clone.default, self.emit.op(flat.value, aten.slice.Tensor, flat.value, 0, 0, new)
            )
        if new < old:
            lost = View(state, before)
            lost.value, lost.version = whole, state.version
            state.lost = lost
        flat.geometry = flat.value.geometry = flat_geometry(nbytes, dtype)
        state.sized = True
        if state.lost is not None:
            for view in state.views.values():  # what a view was cut from may reach beyond the storage by now
                if view is not flat and view.fits:
                    view.derive_from(flat, WINDOW)
        state.nbytes = nbytes
        state.version += 1
        flat.version = state.flushed = state.version

    # -- reading

    def read(self, t: Tensor) -> Value:
        """The value of ``t`` now."""
        if type(t) is SparseReplica:
            return self.sparse[id(t)]
        return self.read_at(t, geometry_of(t))

    def read_at(self, t: Tensor, geometry: Geometry) -> Value:
        """The value of ``t``, a strided tensor that measures ``geometry``, now."""
        storage = _torch.storage_of(t)
        state = self.states.get(_torch.storage_address(storage))
        if state is not None and state.flat is None and len(state.roots) == 1:
            root = state.roots[0]
            if root.version == state.version and root.geometry == geometry and storage.nbytes() == state.nbytes:
                assert root.value is not None
                return root.value  # as of most tensors
        return self.read_view(self.view(t, geometry))

    def known_view(self, t: Tensor) -> View | None:
        """The window of ``t``, if its value is known as it is now."""
        state = self.state(t)
        view = state.views.get(geometry_of(t))
        return view if view is not None and view.value is not None and view.version == state.version else None

    def view_beside_writes(self, t: Tensor) -> View | None:
        """The window of ``t``, if its value is known and all that was written since it was read lies beside it."""
        state = self.state(t)
        view = state.views.get(geometry_of(t))
        if view is None or view.value is None or state.storage.nbytes() != state.nbytes:
            return self.known_view(t)
        later = [w for w, _, v in state.pending if v > view.version]
        since = max(view.version, state.flushed) if later else state.version
        beside = view.version == since and all(disjoint(w.geometry, view.geometry) for w in later)
        return view if beside else None

    def read_view(self, view: View) -> Value:
        """The value of ``view`` now; computing it may carry pending writes to the root."""
        state = view.state
        if state.storage.nbytes() != state.nbytes:
            self.flat(state)
        if view.version == state.version:
            assert view.value is not None
            return view.value
        if state.lost is not None and not view.fits:
            return self._lost(view, state.lost)
        _refuse_beyond(view)
        since = max(view.version, state.flushed)  # the last version of which its value is at hand
        beside = all(v <= since or disjoint(w.geometry, view.geometry) for w, _, v in state.pending)
        if beside and view.parent is not None and 0 not in view.geometry.shape and known_at(view, since):
            # What was written since lies beside it. (Of a root that is so if nothing was written: pending writes want
            # the root as it was before them.)
            view.value, view.version = self._at(view, since), state.version
            return view.value
        self.flush(state)
        return self._at(view, state.version)

    def _lost(self, view: View, flat: View) -> Value:
        """What ``view``, which its storage does not hold any more, showed when it last did: see Note [Lost memory].

        ``flat`` is all that the storage held then.
        """
        assert flat.value is not None
        if view.version >= flat.version:
            assert view.value is not None
            value = view.value
        elif view.parent is None or view.op is WINDOW:
            value = gather(self.emit, flat, flat.value, view.geometry)
            value.geometry = view.geometry
        else:
            value = self._derive(view, self.read_view(view.parent))
        view.value, view.version = value, view.state.version
        return value

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
            value = gather(self.emit, view.parent, parent, view.geometry)
        elif view.op is aten.view.dtype and 0 in view.geometry.shape:
            # Torch asks for strides that what was computed in the view's place, having no elements, need not have.
            g = view.geometry
            value = self.emit.op(parent, aten.new_empty_strided.default, parent, [*g.shape], [*g.stride], dtype=g.dtype)
        elif view.index is None:
            if view.op is aten.view_as_real.default and _is_conjugated_anew(parent):
                parent = self.emit.viewop(aten.resolve_conj.default, parent)
            value = self.emit.viewop(view.op, parent, *view.args, **view.kwargs)
        else:
            key = (parent, view.op, repr(view.args), repr(view.kwargs))
            all_results = self._multiple.get(key)
            if all_results is None:
                all_results = self._multiple[key] = self.emit.viewop(view.op, parent, *view.args, **view.kwargs)
                all_results.parts = None if view.results is None else tuple(view.results)
            value = self.emit.viewop(getitem, all_results, view.index)
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

    def lend(self, storage: torch.UntypedStorage) -> None:
        """A sparse tensor has part of this memory for its own: it may not be written any more."""
        self.lent[_torch.storage_address(storage)] = storage

    def write(self, view: View, value: Value) -> None:
        """``view`` holds ``value`` from now on, and so does whatever shares its memory."""
        state = view.state
        # Of memory beside an empty window nothing has changed but the version that autograd counts.
        if state.is_input and state.nbytes and 0 in view.geometry.shape:
            state.written = self.now()
            return
        _refuse_beyond(view)
        if self.lent and _torch.storage_address(state.storage) in self.lent:
            raise UnsupportedError("sparse tensor", "a tensor is written that a sparse one was made of")
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
        if not state.pending:
            state.pending = [(view, value, state.version)]
        elif state.pending[-1][0] is view:
            state.pending[-1] = (view, value, state.version)
        else:
            state.pending.append((view, value, state.version))
        if view.parent is None:
            state.pending = NOTHING
            state.flushed = state.version
        elif view.geometry.may_self_overlap:
            self.flush(state)
            view.version = -1  # elements that share an address hold one value, whichever was written to each

    def flush(self, state: StorageState) -> None:
        """Carry every pending write up to the root."""
        pending, state.pending = state.pending, NOTHING
        before = state.flushed
        for view, value, version in pending:
            step = view
            while step.parent is not None:
                value = inverse(self.emit, step, value, functools.partial(self._at, step.parent, before))
                step = step.parent
                if step.version <= version:
                    step.value, step.version = value, version
                if value.geometry is None:
                    value.geometry = step.geometry
            before = version
        state.flushed = state.version


def _refuse_beyond(view: View) -> None:
    """Raise if what ``view`` shows is not the program's: eager reads and writes whatever comes after the storage."""
    if view.state.reached_beyond and not view.fits:
        raise UnsupportedError("set_ beyond its storage", "what lies there is no tensor's, and not known")


def _is_conjugated_anew(value: Value) -> bool:
    """Whether ``value`` is a lazy conjugate although it lies as a tensor that is none.

    It is where the conjugate of a conjugate is wanted and what is to be conjugated came out of an op.
    """
    while value.op is not aten._conj.default:
        source = value.args[0] if value.args else None
        if type(source) is not Value or source.memory is not value.memory:
            return False
        value = source
    return True
