"""Reads off the replicas what the function did and writes it down as the steps that repeat it on the caller's tensors.

Order of the steps: storage sizes, data, metadata, outputs. Each later kind presupposes the earlier ones on the real
tensors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import Retrace, UnsupportedError
from aotcheck.autograd.record import (
    Arg,
    BumpVersion,
    Constant,
    Detach,
    FlatInput,
    Hold,
    Local,
    PointAt,
    Record,
    Ref,
    RequireGradOfInteger,
    ResizeStorage,
    Restride,
    Result,
    Role,
    Root,
    SetGradMode,
    Step,
    Visibility,
    Write,
    WriteFlat,
    renumbered,
)
from aotcheck.autograd.results import Results, differentiable_dtype
from aotcheck.autograd.storage import StorageState
from aotcheck.autograd.trace import geometry_of

if TYPE_CHECKING:
    from aotcheck.autograd.capture import Capture, TracedArgument, TracedRoot


class EpilogueBuilder:
    """Builds the record of one capture.

    Used once, inside the tracing mode, because reading a value may record the ops that compute it.
    """

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.results = Results(capture)
        self.table = capture.tracer.table
        self.roots = capture.roots
        self.arguments = capture.arguments
        self.steps = self.results.steps
        self.rebased = self.results.rebased
        self.prepare: list[Arg] = []
        self.last: list[Step] = []  # what views of the arguments must not see

    def build(self, outputs: Sequence[Any]) -> Record:
        """The record of the capture, whose function returned ``outputs``."""
        for a in self.arguments:
            self.results.names[id(a.replica)] = Arg(a.index)
        for r in self.roots:
            self.results.names.setdefault(id(r.replica), r.source)
        self.results.returned = [o for o in outputs if isinstance(o, Tensor)]
        self._check_hooks(outputs)
        input_states = self._input_states()
        self._storage_sizes(input_states)
        for state in input_states:
            if state.version > 0:
                self._data(state)
            else:
                self._versions(state)
        moved = self._metadata()
        for o in outputs:
            if isinstance(o, Tensor):
                self.results.collect(o)
        self.results.anchor_fresh_storages(outputs, moved)
        self.results.find_current(input_states)
        self._apply_metadata(moved)
        for o in outputs:
            if isinstance(o, Tensor) and _torch.leafness(o) is None:
                self.results.name(o)  # first: what makes it stale must not touch the others
        returns = [self.results.name(o) if isinstance(o, Tensor) else self._constant(o) for o in outputs]
        self.steps += self.last
        if self.capture.exit_grad != self.capture.entry_grad:
            self.steps.append(SetGradMode(self.capture.exit_grad))
        return self._record(returns, input_states)

    # -- helpers

    def _constant(self, o: Any) -> Ref | Constant:
        for i, generator in self.capture.generators:
            if o is generator:
                return Arg(i)
        return Constant(o)

    def _with_bases(self) -> Retrace:
        return Retrace(dataclasses.replace(self.capture.mode, with_bases=True))

    def _becomes_differentiable(self, a: TracedArgument) -> None:
        """``requires_grad_()`` on an argument: the real one requires grad before results are attached to autograd."""
        root = next((r for r in self.roots if r.replica is a.replica), None)
        alone = len(self._arguments_on(a.state)) == 1
        if root is None or not a.real_is_leaf or self.capture.is_view[a.index] or not alone:
            raise UnsupportedError("requires_grad_ on an input", "the argument shares its memory with others")
        root.requires_grad = True
        root.edge = self.capture.gradient_edge(root.replica)
        self.prepare.append(Arg(a.index))

    def _input_states(self) -> list[StorageState]:
        states: list[StorageState] = []
        for r in self.roots:
            if r.state not in states:
                states.append(r.state)
        return states

    def _arguments_on(self, state: StorageState) -> list[TracedArgument]:
        return [a for a in self.arguments if a.state is state]

    def _check_hooks(self, outputs: Sequence[Any]) -> None:
        for t in (
            [r.replica for r in self.roots]
            + [a.replica for a in self.arguments]
            + [o for o in outputs if isinstance(o, Tensor)]
        ):
            if _torch.has_hooks(t) or (t.requires_grad and t.retains_grad and not t.is_leaf):
                raise UnsupportedError("hook", "a hook or retain_grad on an input or output inside the function")
            if t.is_inference():
                raise UnsupportedError("inference mode", "an inference tensor leaves the function")
        for a in self.arguments:
            quiet = self.capture.is_view[a.index] and a.requires_grad and a.real_is_leaf is not False
            if quiet and (a.state.version > 0 or _torch.version_of(a.replica) != a.version):
                raise UnsupportedError(
                    "view made under no_grad", "of a base that requires grad, as an argument, written"
                )
            detached = id(a.replica) in self.capture.maker.kernels.detached
            if detached and a.requires_grad and a.state.version > 0:
                raise UnsupportedError("detached argument", "it was written as well")
            if detached and self.capture.is_view[a.index] and not self.capture.mode.with_bases:
                raise self._with_bases()
            if a.replica.requires_grad and not a.requires_grad and _torch.leafness(a.replica):
                self._becomes_differentiable(a)
            elif id(a.replica) in self.capture.maker.kernels.required and a.real_is_leaf and a.requires_grad:
                self.prepare.append(Arg(a.index))

    # -- data

    def _storage_sizes(self, states: Sequence[StorageState]) -> None:
        for state in states:
            if state.storage.nbytes() != self.capture.entry_nbytes[id(state)]:
                self.table.flat(state)
                self.steps.append(ResizeStorage(state.source, state.storage.nbytes()))

    def _data(self, state: StorageState) -> None:
        roots = [r for r in self.roots if r.state is state]
        arguments = self._arguments_on(state)
        rebased = [r for r in roots if id(r.replica) in self.rebased]
        if not self.capture.mode.with_bases and self._needs_bases(rebased, arguments):
            raise self._with_bases()
        if state.flat is None and (len(roots) > 1 or roots[0].geometry.may_self_overlap):
            self.table.flat(state)
        if state.flat is not None:
            value = self.table.read_view(state.flat)
            result = self.results.output(value, Role.MUTATED_INPUT, state.flat.geometry, None)
            self.steps.append(WriteFlat(state.source, state.flat.geometry.dtype, result))
            for a in arguments:
                if _torch.version_of(a.replica) != a.version:
                    self.steps.append(BumpVersion(Arg(a.index)))
        for r in roots:
            if r in rebased:
                self._write_under_grad(r)
            elif state.flat is None:
                value = self.table.read_view(state.views[r.geometry])
                result = self.results.output(value, Role.MUTATED_INPUT, r.geometry, None)
                watched: list[TracedRoot | TracedArgument] = [r, *arguments]
                seen = any(_torch.version_of(x.replica) != x.version for x in watched)
                self.steps.append(Write(r.source, result, Visibility.VERSION if seen else Visibility.HIDDEN))

    def _versions(self, state: StorageState) -> None:
        """Versions that moved although no data was written: an in-place change of a view's metadata does that."""
        tracer = self.capture.tracer
        for r in self.roots:
            moved = id(r.replica) in tracer.regeometried or id(r.replica) in tracer.set_calls
            if r.state is state and id(r.replica) in self.rebased and not moved:
                raise UnsupportedError("history without data", "set_ on a view of an argument")
        for a in self._arguments_on(state):
            if _torch.version_of(a.replica) != a.version and geometry_of(a.replica) == a.geometry:
                self.steps.append(BumpVersion(Arg(a.index)))

    def _needs_bases(self, rebased: Sequence[TracedRoot], arguments: Sequence[TracedArgument]) -> bool:
        if rebased:
            return len(arguments) > 1 or any(
                isinstance(r.source, Arg) and self.capture.is_view[r.source.index] for r in rebased
            )
        return False

    def _write_under_grad(self, root: TracedRoot) -> None:
        t = root.replica
        if self.table.state(t) is not root.state:
            raise UnsupportedError("set_ on a differentiable input", "data was written under grad as well")
        geometry = geometry_of(t)
        if geometry != root.geometry:
            if geometry[3:] != root.geometry[3:]:
                raise UnsupportedError("dtype of an input changed", "under grad")
            self.steps.append(Restride(root.source, geometry, under_grad=root.requires_grad and not root.real_is_leaf))
        inexact = differentiable_dtype(t)
        result = self.results.output(self.table.read(t), Role.MUTATED_INPUT, geometry, t, differentiable=inexact)
        how = Visibility.HISTORY if geometry.may_self_overlap else Visibility.DIFFERENTIABLE
        self.steps.append(Write(root.source, result, how))
        if not inexact:
            self.steps.append(RequireGradOfInteger(root.source))

    # -- metadata

    def _metadata(self) -> list[tuple[TracedArgument, str]]:
        changes: list[tuple[TracedArgument, str]] = []
        for a in self.arguments:
            t = a.replica
            geometry, state = geometry_of(t), self.table.state(t)
            if id(t) in self.capture.tracer.set_calls and self._seen_by_autograd(t):
                if a.state.version > 0 or state.version > 0:
                    raise UnsupportedError("set_ on a differentiable input", "data was written as well")
                changes.append((a, "storage"))
            elif state is not a.state:
                changes.append((a, "storage"))
            elif geometry != a.geometry and not (
                id(t) in self.rebased and a.state.version > 0 and any(r.replica is t for r in self.roots)
            ):
                if geometry[3:] != a.geometry[3:]:
                    raise UnsupportedError(
                        "dtype of an input changed", "an argument became another dtype or conjugated"
                    )
                if id(t) in self.rebased and not self.capture.mode.with_bases and self.capture.is_view[a.index]:
                    raise self._with_bases()
                if a.requires_grad and a.real_is_leaf is not False and not self.capture.is_view[a.index]:
                    raise UnsupportedError(
                        "change of metadata of a leaf", "its gradient has the shape that it has later"
                    )
                changes.append((a, "geometry"))
            if a.requires_grad and not t.requires_grad:
                changes.append((a, "detach"))
        return changes

    def _apply_metadata(self, changes: Sequence[tuple[TracedArgument, str]]) -> None:
        holders: dict[int, tuple[Local, int | None]] = {}
        for a, kind in changes:
            if kind == "storage":
                state = self.table.state(a.replica)
                holder = self.results.local()
                if state.is_input:
                    self.steps.append(Hold(holder, self.results.current[id(state)]))
                    holders[a.index] = (holder, None)
                else:
                    ref, anchored_at = self.results.anchors[id(state)]
                    self.steps.append(Hold(holder, ref))
                    holders[a.index] = (holder, anchored_at)
        for a, kind in changes:
            t, geometry = a.replica, geometry_of(a.replica)
            if kind == "geometry":
                under_grad = self._restrided_under_grad(a)
                if t.requires_grad and self.capture.is_view[a.index]:
                    base = _torch.base_of(t)
                    if base is None or geometry_of(base)[3:] != geometry[3:]:
                        raise UnsupportedError(
                            "change of metadata of a view", "of another dtype than its base, under grad"
                        )
                self.steps.append(Restride(Arg(a.index), geometry, under_grad=under_grad))
            elif kind == "storage":
                holder, offset = holders[a.index]
                through_data = not (id(t) in self.capture.tracer.set_calls and geometry.dtype == a.geometry.dtype)
                if offset is not None:
                    geometry = geometry._replace(offset=geometry.offset - offset)
                under_grad = not through_data and self._seen_by_autograd(t)
                self.steps.append(PointAt(Arg(a.index), holder, geometry, offset is not None, through_data, under_grad))
            else:
                if a.state.version > 0 or any(base is t for _, base in self.results.tensors.values()):
                    raise UnsupportedError("detached argument", "it was written as well, or a view of it is returned")
                self.last.append(Detach(Arg(a.index), leaf=t.is_leaf and bool(a.real_is_leaf)))

    def _seen_by_autograd(self, t: Tensor) -> bool:
        """Whether ``t``, or the root it is a view of, has another history than before."""
        return id(t) in self.rebased or id(_torch.base_of(t)) in self.rebased

    def _restrided_under_grad(self, a: TracedArgument) -> bool:
        """Whether the change of geometry itself has to leave a history; a write to the root under grad has left it."""
        return self._seen_by_autograd(a.replica) and a.state.version == 0

    # -- the end

    def _record(self, returns: list[Ref | Constant], states: Sequence[StorageState]) -> Record:
        order = sorted(range(len(self.results.outputs)), key=lambda k: self.results.outputs[k].role.value)
        place = {old: new for new, old in enumerate(order)}
        steps = tuple(renumbered(s, place) for s in (*self.results.holds, *self.steps))
        written = {s.source for s in steps if isinstance(s, WriteFlat)} | {
            s.target for s in steps if isinstance(s, Write)
        }
        touched = {id(r.state) for r in self.roots if r.source in written}
        touched |= {id(s) for s in states if any(isinstance(x, ResizeStorage) and x.source == s.source for x in steps)}
        flats = tuple(FlatInput(v, source, dtype) for v, source, dtype in self.table.flat_inputs)
        placeholders = {r.placeholder for r in self.roots if id(r.state) in touched}
        placeholders |= {f.value for f in flats}
        return Record(
            roots=tuple(Root(r.source, r.requires_grad) for r in self.roots),
            flats=flats,
            outputs=tuple(self.results.outputs[k] for k in order),
            steps=steps,
            returns=tuple(Result(place[r.index]) if isinstance(r, Result) else r for r in returns),
            written_placeholders=frozenset(placeholders),
            entry_grad=self.capture.entry_grad,
            prepare=tuple(self.prepare),
            differentiable=any(o.differentiable for o in self.results.outputs),
            generators=tuple(i for i, _ in self.capture.generators),
        )
