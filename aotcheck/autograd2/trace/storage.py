"""All storages of a trace: reads and writes on them become operations of the graph."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.graph import Graph, Node
from aotcheck.autograd2.ir.meta import Geometry, disjoint, geometry_of
from aotcheck.autograd2.ir.size import at_least, is_static, same, term
from aotcheck.autograd2.trace import view as values
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.symbols import Symbols
from aotcheck.autograd2.trace.view import WINDOW, StorageState, View, is_odd


class StorageTable:
    """Storages by their address, the only names that they have; each state keeps its storage alive.

    ``flat_inputs`` are placeholders for whole storages of the caller's, with the input that lies there and the dtype.
    """

    def __init__(self, graph: Graph, symbols: Symbols | None = None) -> None:
        self.graph = graph
        self.symbols = symbols
        self.learnt = 0
        self.backwards_begun = 0
        """How many backwards of results have begun; they may write what they make alone."""
        self.states: dict[int, StorageState] = {}
        self.flat_inputs: list[tuple[Node, int, torch.dtype]] = []

    # -- lookup

    def spelled(self, x: Any) -> Any:
        """A term, or a geometry, as it is spelled by now: an equality of symbols may have been learnt since."""
        return x if self.symbols is None else self.symbols.spelled(x)

    def _spell(self) -> None:
        """Look all views up by how their geometries are spelled by now."""
        if self.symbols is not None and self.learnt != (learnt := len(self.symbols.env.replacements)):
            self.learnt = learnt
            for state in self.states.values():
                state.nbytes = self.spelled(state.nbytes)
                for view in (*state.views.values(), state.flat, state.lost):
                    if view is not None:
                        view.geometry = self.spelled(view.geometry)
                state.views = {view.geometry: view for view in state.views.values()}

    def storage_state(self, t: Tensor) -> StorageState:
        """The state of the storage on which ``t`` lies now."""
        self._spell()
        storage = _torch.storage_of(t)
        address = _torch.storage_address(storage)
        if (state := self.states.get(address)) is None:
            state = StorageState(storage, t.device, term(storage.nbytes()), backwards_begun=self.backwards_begun)
            self.states[address] = state
        return state

    def hold(self, t: Tensor, value: Node) -> View:
        """``t`` is a root of its storage and holds ``value``, unless another of that geometry holds its own."""
        state, geometry = self.storage_state(t), geometry_of(t)
        view = state.views[geometry] = state.views.get(geometry, View(state, geometry))
        view.value, view.version = view.value or value, state.version
        state.roots.append(view)
        value.geometry, value.device = geometry, state.device
        return view

    def view(self, t: Tensor) -> View:
        """The view that ``t`` is now; one that no traced op made is cut from the flat value."""
        return self.view_at(self.storage_state(t), geometry_of(t))

    def view_at(self, state: StorageState, geometry: Geometry) -> View:
        """The view of that geometry."""
        if (view := state.views.get(geometry)) is None:
            if not state.roots:
                refuse(Event.UNKNOWN_STORAGE, "a tensor appeared whose storage no traced op made")
            view = View(state, geometry)
            view.derive(self.flat(state), WINDOW)
            state.views[geometry] = view
        return view

    def apart(self, state: StorageState) -> bool:
        """Whether no two roots share memory, so that each is written by itself."""
        if state.apart is None:
            spans = [(g.offset * g.dtype.itemsize, g.end * g.dtype.itemsize) for g in (r.geometry for r in state.roots)]
            static = all(map(is_static, spans))
            state.apart = static and all(x[1] <= y[0] for x, y in itertools.pairwise(sorted(spans)))
        return state.apart

    def is_resized(self, state: StorageState) -> bool:
        """Whether the size of a storage has been changed, which no op tells, since this was last noted."""
        self._spell()
        return not same(term(state.storage.nbytes()), state.nbytes)

    # -- the flat value

    def flat(self, state: StorageState) -> View:
        """The flat view, made when it is first needed, and resized after the storage was."""
        view = state.flat or self._make_flat(state)
        if self.is_resized(state):
            self._resize(state, view)
        return view

    def _make_flat(self, state: StorageState) -> View:
        self.flush(state)
        if state.source is not None:
            dtypes = {r.geometry.dtype for r in state.roots}
            if dtypes == {torch.bool}:  # of which a copy makes other bytes zeros and ones
                dtypes |= {v.geometry.dtype for v in state.views.values()}
            dtype = dtypes.pop() if len(dtypes) == 1 else torch.uint8
            view = View(state, values.flat_geometry(state.nbytes, dtype))
            value = self.graph.placeholder(view.geometry, state.device)
            self.flat_inputs.append((value, state.source, dtype))
            if is_odd(state.nbytes, dtype):  # ops that scatter into such a storage raise an internal error
                value = self.graph.like(value, torch.ops.aten.clone.default, value)
                for root in state.roots:  # to be cut from the copy
                    root.version = -1 if root.version == 0 else root.version
            for root in state.roots:
                if root.version > 0:
                    assert root.value is not None
                    value = values.scatter(self.graph, view.geometry, value, root.geometry, root.value)
        else:
            view, value = values.flat_of_root(self.graph, state, state.roots[0])
        value.geometry, value.device = view.geometry, state.device
        view.value, view.version = value, state.version
        for root in state.roots:
            root.derive(view, WINDOW)
        state.roots, state.flat, state.flushed, state.pending = [view], view, state.version, []
        return view

    def _resize(self, state: StorageState, view: View) -> None:
        """The storage has another size than the flat value, which is that of ``view``."""
        nbytes = term(state.storage.nbytes())
        self.flush(state)
        assert view.value is not None
        whole, before, after = view.value, view.geometry, values.flat_geometry(nbytes, view.geometry.dtype)
        if at_least(after.numel, before.numel):
            view.value = values.pad(self.graph, whole, after.numel - before.numel, after.dtype)
        else:
            part = self.graph.like(whole, torch.ops.aten.slice.Tensor, whole, 0, 0, after.numel)
            view.value = self.graph.like(part, torch.ops.aten.clone.default, part)
            state.lost = View(state, before)
            state.lost.value, state.lost.version = whole, state.version
        view.geometry = view.value.geometry = after
        state.nbytes, state.resized = nbytes, True
        if state.lost is not None:
            for other in state.views.values():
                if other is not view and other.fits:
                    other.derive(view, WINDOW)
        state.version += 1
        view.version = state.flushed = state.version

    # -- reading

    def read(self, t: Tensor) -> Node:
        """The value of ``t`` now."""
        return self.read_view(self.view(t))

    def read_view(self, view: View) -> Node:
        """The value of ``view`` now; writes that it does not share memory with are not carried to the root for it."""
        state = view.state
        if self.is_resized(state):
            self.flat(state)
        if view.version == state.version:
            return self._at(view, state.version)
        if state.lost is not None and not view.fits:
            return self._lost(view, state.lost)
        since = max(view.version, state.flushed)
        beside = all(v <= since or disjoint(w.geometry, view.geometry) for w, _, v in state.pending)
        if beside and view.parent is not None and _known_at(view, since):
            view.value, view.version = self._at(view, since), state.version
            return view.value
        self.flush(state)
        return self._at(view, state.version)

    def _lost(self, view: View, whole: View) -> Node:
        """What ``view`` showed when its storage last had all its memory: memory that was freed and may come back."""
        if view.value is None or view.version < whole.version:
            assert whole.value is not None
            view.value = values.gather(self.graph, whole.geometry, whole.value, view.geometry)
            view.value.geometry = view.geometry
        view.version = view.state.version
        return view.value

    def _at(self, view: View, version: int) -> Node:
        if _known(view, version):
            assert view.value is not None
            return view.value
        assert view.parent is not None, f"a root of version {view.version} was asked for version {version}"
        value = self._derive(view, self._at(view.parent, version))
        if view.version <= version:
            view.value, view.version = value, version
        return value

    def _derive(self, view: View, parent: Node) -> Node:
        if view.op is WINDOW:
            assert view.parent is not None
            value = values.gather(self.graph, view.parent.geometry, parent, view.geometry)
        elif view.op is torch.ops.aten._conj.default and not view.geometry.conj:  # the value may not be lazy
            value = self.graph.like(parent, torch.ops.aten._conj_physical.default, parent)
        else:
            if view.op is torch.ops.aten.view_as_real.default and parent.op is torch.ops.aten._conj.default:
                parent = self.graph.like(parent, torch.ops.aten.resolve_conj.default, parent)  # of what was written
            value = self.graph.view(view.op, parent, *view.args, **view.kwargs)
        value.geometry = view.geometry
        return value

    # -- writing

    def write(self, view: View, value: Node) -> None:
        """``view`` holds ``value`` from now on, and so does whatever shares its memory."""
        state = view.state
        if state.backwards_begun < self.backwards_begun:
            refuse(Event.BACKWARD_WRITE)
        if view.geometry.is_empty and state.is_input:
            state.touched, state.sequence = True, _torch.sequence_number()
            return
        if state.lost is not None and not view.fits:
            refuse(Event.FREED)
        if view.geometry.dtype is not torch.bool and any(r.geometry.dtype is torch.bool for r in state.roots):
            refuse(Event.UNKNOWN_STORAGE, "memory of bools is written as another dtype")
        odd = is_odd(state.nbytes, view.geometry.dtype)
        if odd and state.roots[0].geometry.dtype != view.geometry.dtype:
            refuse(Event.ODD, str(view.geometry.dtype))
        if state.is_input and (odd or (len(state.roots) > 1 and not self.apart(state))):
            self.flat(state)
        step: View | None = view
        while step is not None and step is not state.flat:
            if step.geometry.may_overlap_itself or (step.parent is not None and not step.invertible):
                view.derive(self.flat(state), WINDOW)
                break
            step = step.parent
        if view in state.roots and len(state.roots) > 1:
            self.flush(state)
        state.version, state.sequence = state.version + 1, _torch.sequence_number()
        if not view.geometry.may_overlap_itself:  # else its strides are not those of the op's result
            view.value, view.version = value, state.version
        if value.geometry is None:
            value.geometry = view.geometry
        if state.pending and state.pending[-1][0] is view:
            state.pending.pop()
        state.pending.append((view, value, state.version))
        if view.parent is None and len(state.roots) == 1:
            state.pending, state.flushed = [], state.version

    def flush(self, state: StorageState) -> None:
        """Carry every pending write to the root."""
        pending, state.pending = state.pending, []
        before = state.flushed
        for view, value, version in pending:
            step = view
            while step.parent is not None:
                value = values.inverse(self.graph, step, value, functools.partial(self._at, step.parent, before))
                step = step.parent
                if step.version <= version:
                    step.value, step.version = value, version
                if value.geometry is None:
                    value.geometry = step.geometry
            before = version
        state.flushed = state.version


def _known(view: View, version: int) -> bool:
    """Whether the value of ``view`` is at hand as of ``version``; other roots may have been written since it was."""
    return view.version == version or (view.parent is None and view.version < version)


def _known_at(view: View | None, version: int) -> bool:
    """Whether the value of ``view``, or of one that it is derived from, is at hand as of ``version``."""
    while view is not None and not _known(view, version):
        view = view.parent
    return view is not None
