"""Which tensor holds each storage when others on it are made: one of the caller's, or one that the graph returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.effects.draft import Draft
from aotcheck.autograd.effects.views import (
    counts_as_inference,
    differentiable_dtype,
    has_history,
    is_new_leaf,
    is_odd,
    never_counts,
)
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.ir.storage_state import StorageState, View
from aotcheck.autograd.ir.trace import Geometry, geometry_of
from aotcheck.autograd.record.record import Role
from aotcheck.autograd.record.steps import (
    Arg,
    CountWith,
    Hold,
    MakeInference,
    PointAt,
    Ref,
    RequireGrad,
    RequireGradOfInteger,
    ResizeStorage,
    Result,
    Source,
    Way,
)
from aotcheck.autograd.tensors.subclasses import Bundle, is_wrapper
from aotcheck.autograd.tracing.traced_inputs import TracedArgument

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture


_DEFAULT = _torch.CreationMeta.DEFAULT


class Holders(Draft):
    """The tensors from which windows on storages are made."""

    def __init__(self, capture: Capture) -> None:
        super().__init__(capture)
        self.makers: dict[int, Callable[[], Ref]] = {}  # id of a wrapper, or a view of one -> how it gets its name
        # id of an input storage's state -> a tensor that has it when outputs are made
        self.current: dict[int, Ref] = {}
        self._gradients: dict[int, list[Geometry]] = {}  # by id of such a state: where gradients lie
        self._shown: set[int] = set()  # ids of the states of storages that the caller sees as a whole

    def anchor_fresh_storages(
        self, outputs: Sequence[Any], held: Sequence[Tensor], changes: Sequence[tuple[TracedArgument, str]]
    ) -> None:
        """One graph output per storage made inside.

        Every other tensor on it is made again from that one, so they share memory. Of what the caller ``held`` or comes
        to hold he sees the whole storage, of what is returned only what the tensors show.
        """
        returned = {id(o): o for o in outputs if isinstance(o, Tensor)}
        needed: dict[int, tuple[StorageState, list[Tensor]]] = {}
        for t, _ in self.tensors.values():
            state = self.table.state(t)
            if not state.is_input:
                needed.setdefault(id(state), (state, []))[1].append(t)
        self._shown = {id(self.table.state(t)) for t in held if not (is_wrapper(t) or is_sparse(t))}
        self._shown |= {id(self.table.state(a.replica)) for a in self.arguments}
        for a, kind in changes:
            state = self.table.state(a.replica)
            if kind == "storage" and not state.is_input:
                needed.setdefault(id(state), (state, []))
        for g in self._brought_onward():
            if id(g.state) in needed:
                self._gradients.setdefault(id(g.state), []).append(g.geometry)
        pairs = self.tensors.values() if self.kernels.moved else ()
        apart = {id(b) for t, b in pairs if b is not None and self.table.state(b) is not self.table.state(t)}
        self._anchored.update(needed)
        for key, (state, tensors) in needed.items():
            if state.storage.nbytes() != state.nbytes:
                self.table.flat(state)
            survivors = [t for t in tensors if id(t) in returned]
            partly = key in self._shown and not (survivors and _is_whole(survivors[0], state))
            alone = len(survivors) == 1 and not partly and not state.sized
            alone = alone and apart.isdisjoint(map(id, tensors))  # views that are elsewhere are made of these
            alone = alone and key not in self._gradients
            if alone and self._plain(survivors[0]):
                only = survivors[0]
                for t in tensors:
                    del self.tensors[id(t)]
                self.tensors[id(only)] = (only, None)
                tensors = [only]
            self._anchor(state, tensors, returned)

    def _plain(self, t: Tensor) -> bool:
        """Whether a lone alias of a storage made inside can be an output by itself.

        What is a view to autograd cannot, with or without a history: the caller may write it, or cut it off, which
        gives it the history of a view, or is refused (``detach_``, what was made under no_grad, parts of a split). Nor
        can a part of what was written: its value may have been computed by itself, and would lie alone in memory,
        without the rest to which a caller may widen it (``resize_``, ``as_strided``).
        """
        base, state = self.tensors[id(t)][1], self.table.state(t)
        if state.version > 0 and not (_is_whole(t, state) or _leaves_room_alone(t, state)):
            return False
        if base is not None and (id(base) in self._arguments or self.table.state(base) is not self.table.state(t)):
            return False
        return _torch.base_of(t) is None

    def _anchor(self, state: StorageState, tensors: Sequence[Tensor], returned: dict[int, Tensor]) -> None:
        """Let the graph return a tensor on ``state`` from which the others are made: one of them, or the whole."""
        tops = [t for t in tensors if self.tensors[id(t)][1] is None]
        tops = [t for t in tops if id(t) not in self.makers]  # views of wrappers are made of these
        tops = [t for t in tops if not (t.requires_grad and (is_odd(t) or _torch.leafness(t) is None))]
        here = self.capture.entry_inference
        tops = [t for t in tops if not (never_counts(t) or (here and counts_as_inference(t)))]
        matching = [t for t in tops if state.roots and state.roots[0].geometry == geometry_of(t)]
        alike = len({geometry_of(t) for t in tops}) == 1
        candidates = [t for t in tops if has_history(t)] or matching or (tops if alike else [])
        candidates = [c for c in candidates if geometry_of(c).reach <= state.storage.nbytes()]
        shown = id(state) in self._shown
        if shown or state.version > 0:  # a part of what was written may be computed by itself, without the rest
            candidates = [c for c in candidates if _is_whole(c, state) or (not shown and _leaves_room_alone(c, state))]
        elif state.sized:  # the caller sees how large the storage is
            candidates = [c for c in candidates if geometry_of(c).reach == state.nbytes]
        passed = self._places_passed(state)
        alone = len(tensors) == 1 and not (shown or passed) and id(state) not in self._gradients
        made_of = () if alone else [t for t, _ in self.sources() if self.table.state(t) is state]
        there = [*tensors, *made_of]
        windows = [*map(geometry_of, there), *self._gradients.get(id(state), ()), *passed]
        chosen = next((c for c in candidates if alone or all(geometry_of(c).holds(g) for g in windows)), None)
        if chosen is None:
            root = self.table.flat(state)
            ref = self.output(self.table.read_view(root), Role.INTERMEDIATE_BASE, root.geometry, None)
            self.anchors[id(state)] = (ref, 0)
            there += [a.replica for a in self.arguments if self.table.state(a.replica) is state]
            self._inference(ref, any(t.is_inference() for t in there))
            self._give_room(ref, state, [*map(geometry_of, there), *windows])
            return
        geometry = geometry_of(chosen)
        role = Role.USER_OUTPUT if id(chosen) in returned else Role.INTERMEDIATE_BASE
        ref = self.output(self.table.read(chosen), role, geometry, chosen)
        alias = not self.capture.entry_inference and chosen.is_inference() and _torch.version_of(chosen) >= 0
        self._inference(ref, chosen.is_inference(), alias)
        self._count_with_another(ref, chosen)
        if has_history(chosen):
            if differentiable_dtype(chosen):
                self.attach(ref, chosen)
            else:
                self.steps.append(RequireGradOfInteger(ref))
        self.names[id(chosen)] = ref
        if state.reached_beyond:
            self._give_room(
                ref, state, [geometry_of(a.replica) for a in self.arguments if self.table.state(a.replica) is state]
            )
        if is_new_leaf(chosen):
            if id(chosen) in self.kernels.required:
                self._schedule_requirement(chosen)
            else:
                self.before.append(RequireGrad(ref, chosen.is_inference()))
        self.anchors[id(state)] = (ref, geometry.offset)

    def _give_room(self, ref: Result, state: StorageState, windows: Sequence[Geometry]) -> None:
        """Let the storage of ``ref`` hold all ``windows`` until they have been made."""
        room = max([g.reach for g in windows], default=0)
        if room > state.nbytes:
            self.before.append(ResizeStorage(ref, room))
            self.shrink.append(ResizeStorage(ref, state.nbytes))

    def _places_passed(self, state: StorageState) -> list[Geometry]:
        """Where arguments lay on the storage of ``state`` on their way, which they may have to come by again."""
        if not self.kernels.left:
            return []
        there = _torch.storage_address(state.storage)
        left = [x for a in self.arguments for x in self.kernels.left.get(id(a.replica), ())]
        return [x.geometry for x in left if x.storage == there]

    def _inference(self, ref: Result, wanted: bool, alias: bool = False) -> None:
        if wanted != self.capture.entry_inference:
            self.before.append(MakeInference(ref, wanted, alias))

    def _count_with_another(self, ref: Result, t: Tensor) -> None:
        """Let the result ``t`` count with what it was a view or an alias of before one of the two went elsewhere.

        That is an earlier result, or an argument of which all writes are counted before results are attached.
        """
        if not self.kernels.moved or _torch.version_of(t) < 0:
            return
        results = set(self.names.values())
        known: list[tuple[Tensor | None, Ref]] = [(o.tensor, Result(k)) for k, o in enumerate(self.outputs)]
        there = [(x, r) for x, r in known if x is not None and x is not t and r in results]
        there += [(a.replica, Arg(a.index)) for a in self.arguments if self._counts_first(a)]
        there = [(x, r) for x, r in there if _torch.version_of(x) >= 0]
        (found,) = _torch.counted_by([t], [x for x, _ in there])
        if found is not None:
            self.before.append(CountWith(ref, there[found][1]))

    def _counts_first(self, a: TracedArgument) -> bool:
        """Whether no step counts a write of ``a`` once results are attached."""
        if _torch.version_of(a.replica) == a.version:
            return True
        return id(a.replica) not in self.kernels.moved and _torch.grad_fn_of(a.replica) is a.grad_fn

    def _brought_onward(self) -> Iterator[View]:
        """The gradients of backwards inside that go on in the caller's graph."""
        for onward in self.capture.onward:
            for _, arrived in onward.gradients:
                for x in arrived.leaves if isinstance(arrived, Bundle) else (arrived,):
                    if not isinstance(x, Arg):
                        yield x.view

    def sources(self) -> list[tuple[Tensor, Tensor]]:
        """The views, with their bases, of which the views that are needed are made again, from the base on."""
        found = []
        for t, base in self.tensors.values():
            made = None if base is None or id(t) in self.names else self._current(t)
            while made is not None and base is not None and made.source is not base:
                found.append((made.source, base))
                made = self._current(made.source)
        return found[::-1]

    def find_current(self, states: Sequence[StorageState]) -> None:
        """Find a tensor that has each input storage still, now that arguments may have left theirs."""
        for state in states:
            here = [a for a in self.arguments if a.state is state and self.table.state(a.replica) is state]
            holders: list[Source] = [Arg(a.index) for a in here]
            holders += [r.source for r in self.roots if r.state is state and self.capture.stays(r)]
            if holders:
                self.current[id(state)] = holders[0]
            else:
                local = self.local()
                self.holds.append(Hold(local, state.source))
                self.current[id(state)] = local

    def holder(self, state: StorageState) -> tuple[Ref, int | None]:
        """A tensor that has the storage by now, and its offset in the trace; None where offsets are the caller's."""
        if state.is_input:
            return self.current[id(state)], None
        if id(state) not in self.anchors:  # nothing on it survives
            raise UnsupportedError("view of a base that has changed", "what it was made of went to memory of its own")
        return self.anchors[id(state)]

    def point(
        self, target: Ref, t: Tensor, way: Way, lies: Geometry | None = None, holder: Ref | None = None
    ) -> PointAt:
        """Take ``target`` to where ``t`` lies, or at first to another geometry there.

        ``holder`` has held that storage since, if what has it by now may not when the step is carried out.
        """
        ref, anchor = self.holder(self.table.state(t))
        at = geometry_of(t) if lies is None else lies
        if anchor is not None:
            at = at._replace(offset=at.offset - anchor)
        return PointAt(target, holder or ref, at, anchor is not None, way, t.is_inference())


def _leaves_room_alone(t: Tensor, state: StorageState) -> bool:
    """Whether ``t`` is what an op made on storage that has more room, of which nothing is known: see Note [Room]."""
    return state.has_room and state.flat is None and geometry_of(t) == state.roots[0].geometry


def _is_whole(t: Tensor, state: StorageState) -> bool:
    """Whether ``t`` shows all of the storage it lies on."""
    g = geometry_of(t)
    places = math.prod(n for n, stride in zip(g.shape, g.stride, strict=True) if stride or not n)
    return g.offset == 0 and places * t.itemsize == state.nbytes == g.reach
