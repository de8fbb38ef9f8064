"""Which memory the backwards of a call write, and how the runtime finds it: see Note [Writes in the backward]."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from aotcheck.autograd.eager_graph.saved import saved_tensors
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.ir.storage_state import StorageState
from aotcheck.autograd.ir.trace import CONSTANT, PLACEHOLDER, Value, geometry_of
from aotcheck.autograd.ops.twins import Kind, info_of
from aotcheck.autograd.record.steps import Arg, Ref, Result, Visibility
from aotcheck.autograd.runtime.attachments import LIVE, BackwardReshape, BackwardWrite, Window
from aotcheck.autograd.tensors.subclasses import is_wrapper
from aotcheck.autograd.tracing.sandbox import BackwardTrace, Reshaped, Written

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture


@dataclasses.dataclass(frozen=True)
class _Live:
    """A storage that backwards write; ``value`` is what they read of it.

    That is an input of theirs, filled from ``window``, or (no window) what the forward saved: nobody else has it.
    ``is_checked``: eager saves memory of it such that it raises if that was written, even by a backward.
    """

    state: StorageState
    value: Value
    window: Window | None
    is_checked: bool = True


class LiveMemory:
    """The storages that the backwards of one call write, known when all stages have been traced once."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.settled = False
        self._live: dict[int, _Live] = {}
        self._reshaped: dict[int, int] = {}  # index of an argument whose geometry changes -> where it is held
        self._grown = 0

    # -- while tracing

    @property
    def contents(self) -> dict[int, tuple[StorageState, Value]]:
        """What each storage holds in a backward."""
        return {key: (x.state, x.value) for key, x in self._live.items()}

    def grew(self) -> bool:
        """Whether there are more than when this was last asked."""
        before, self._grown = self._grown, len(self._live)
        return self._grown > before

    def take(self, traced: BackwardTrace) -> bool:
        """Note what a backward changed; whether it has to be traced again because of what is new."""
        if not (traced.written or traced.reshaped):
            return False
        for x in traced.reshaped:
            index = self._argument(x)
            if index is not None and index not in self._reshaped:
                self._check_open()
                self._reshaped[index] = len(self._reshaped)
        seeds = {id(self.capture.tracer.table.state(t)) for t in traced.seeds if _has_memory(t)}
        new = [w for w in traced.written if id(w.state) not in self._live and id(w.state) not in seeds]
        for w in new:
            self._check_open()
            self._live[id(w.state)] = self._find(w)
        return bool(new)

    def _check_open(self) -> None:
        if self.settled:
            raise UnsupportedError("mutation in the backward", "that only some backwards of the call do")

    def _argument(self, x: Reshaped) -> int | None:
        return next((a.index for a in self.capture.arguments if a.replica is x.tensor), None)

    def _find(self, w: Written) -> _Live:
        capture, state = self.capture, w.state
        table = capture.tracer.table
        root = state.roots[0]
        holder: Ref | None = None
        anchor = None
        if state.is_input:
            there = [r.source for r in capture.roots if r.state is state and capture.stays(r)]
            if not there:
                raise UnsupportedError("mutation in the backward", "of memory that its argument has left")
            holder = there[0]
        else:
            for k, output in enumerate(capture.record.outputs):
                if output.tensor is None or table.state(output.tensor) is not state:
                    continue
                geometry = geometry_of(output.tensor)
                if geometry.holds(root.geometry):
                    holder, anchor = Result(k), geometry.offset
            if holder is None and state.flat is not None:
                raise UnsupportedError("mutation in the backward", "of a storage made inside and resized or restrided")
        if holder is None:
            if w.before.op is PLACEHOLDER:
                raise UnsupportedError("mutation in the backward", "of what a tensor subclass holds")
            return _Live(state, w.before, None, self._is_checked(state))
        value = Value(PLACEHOLDER, (), {})
        value.geometry, value.device, value.memory = root.geometry, state.device, value
        value.name = f"live_{len(self._live) + 1}"
        return _Live(state, value, Window(holder, root.geometry, anchor))

    def refuse_in_derivative(self, traced: BackwardTrace) -> None:
        """Raise where a backward that is differentiated itself does more than write what has no history.

        See Note [Derivatives of backwards that write].

        Raises:
            UnsupportedError: it does.
        """
        if traced.reshaped:
            raise UnsupportedError("mutation in the backward", "of metadata, in one that is differentiated")
        if any(id(w.state) not in self._live for w in traced.written):
            raise UnsupportedError("mutation in the backward", "of what only one does that is differentiated")
        mine = [x for w in traced.written if (x := self._live[id(w.state)]).window is None]
        if any(x.is_checked for x in mine):
            raise UnsupportedError("mutation in the backward", "of what an op keeps, in one that is differentiated")
        if any(t.requires_grad for t, _ in traced.versions):
            raise UnsupportedError("mutation in the backward", "of what has a history, in one that is differentiated")

    def refuse_copies(self, saved: Sequence[Sequence[Value]]) -> None:
        """Raise where hooks make copies of memory that several Functions save for one of them to write it.

        Raises:
            UnsupportedError: they may.
        """
        mine = [x.value for x in self._live.values() if x.window is None] if self.capture.hooks else []
        if any(sum(v in each for each in saved) > 1 for v in mine):
            raise UnsupportedError("mutation in the backward", "of what several Functions keep, with hooks on that")

    def refuse_reading(self, saved: Sequence[Value], traced: BackwardTrace) -> None:
        """Raise where derivatives of a backward read what that wrote: see Note [Derivatives of backwards that write].

        Raises:
            UnsupportedError: it is among what is ``saved`` for them.
        """
        contents = {v for w in traced.written for v in (w.before, w.after, self._live[id(w.state)].value)}
        if any(_behind_views(v) in contents or v in contents for v in saved):
            raise UnsupportedError("mutation in the backward", "of what derivatives of it read")

    # -- for the runtime

    @property
    def placeholders(self) -> list[Value]:
        """The inputs of backwards that are filled from ``windows``."""
        return [x.value for x in self._live.values() if x.window is not None]

    @property
    def windows(self) -> tuple[Window, ...]:
        """What the context of each Function holds, and after it the arguments ``reshaped``."""
        return tuple(x.window for x in self._live.values() if x.window is not None)

    @property
    def reshaped(self) -> tuple[Ref, ...]:
        """The arguments whose geometry backwards change."""
        return tuple(Arg(k) for k in self._reshaped)

    @property
    def needed(self) -> bool:
        """Whether contexts hold anything of this."""
        return bool(self.windows or self.reshaped)

    def saved_of(self, written: Sequence[Written]) -> list[Value]:
        """What the forward has to save because it is written, read or not."""
        if not written:
            return []
        mine = [self._live[id(w.state)] for w in written if id(w.state) in self._live]
        return [x.value for x in mine if x.window is None]

    def writes(
        self, traced: BackwardTrace, saved: Mapping[Value, int], places: Sequence[int], first: int
    ) -> list[BackwardWrite]:
        """What the runtime writes after a backward whose graph returns the new contents as its results from ``first``.

        ``saved`` says where the backward has what was saved, ``places`` where among what it is given its tangents are.
        """
        if not traced.written:
            return []
        windows = {id(x.state): k for k, x in enumerate(x for x in self._live.values() if x.window is not None)}
        table = self.capture.tracer.table
        given = zip(places, traced.seeds, strict=True)
        seeds = {id(table.state(t)): j for j, t in given if _has_memory(t)}
        found = []
        for n, w in enumerate(traced.written, first):
            if id(w.state) in seeds:
                target = f"g[{seeds[id(w.state)]}]"
            elif id(w.state) in windows:
                target = f"{LIVE}[{windows[id(w.state)]}]"
            else:
                live = self._live[id(w.state)]
                target = f"s[{saved[live.value]}]"
                if not live.is_checked:
                    found.append(BackwardWrite(target, n, Visibility.HIDDEN))
                    continue
            found.append(BackwardWrite(target, n, Visibility.VERSION if w.seen else Visibility.HIDDEN))
        return found

    def _is_checked(self, state: StorageState) -> bool:
        """See ``_Live``."""
        table = self.capture.tracer.table
        for a in self.capture.record.attached:
            try:
                if any(table.state(t) is state for t in saved_tensors(a.tensor, (), packed=False)):
                    return True
            except RuntimeError:  # something was written already
                continue
        return False

    def reshapings(self, traced: BackwardTrace) -> list[BackwardReshape]:
        """What the runtime reshapes after a backward."""
        found = []
        for x in traced.reshaped:
            index = self._argument(x)
            if index is not None:
                found.append(BackwardReshape(len(self.windows) + self._reshaped[index], x.before, x.after))
        return found


def _behind_views(v: Value) -> Value:
    """What ``v`` shows, by way of views."""
    while v.op not in (PLACEHOLDER, CONSTANT) and info_of(v.op).kind is Kind.VIEW:
        v = v.args[0]
    return v


def _has_memory(t: Tensor) -> bool:
    return not is_wrapper(t) and not is_sparse(t)


__all__ = ["LiveMemory"]
