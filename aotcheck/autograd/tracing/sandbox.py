"""A backward is traced as if it had not happened: what it writes is noted, and the trace is then as it was before.

Note [Writes in the backward]
The backward of a custom Function may write buffers, saved tensors and the gradients it is given, and recomputed code
may count its calls. Such a write is one of the real backward, each time it runs, so of the trace nothing must remain of
it: another backward is traced from where the forward ended. What a backward writes of the caller's memory it also reads
from there, as it is then: such a storage is *live*, its content an input of the backward's graph.

Note [Derivatives of backwards that write]
A backward whose results have gradients writes too, each time it runs. What its nodes saved of such memory before it was
written is out of date by then, and eager's derivative raises. So the derivative is traced at the versions that the
backward left (``since``), though what was there before holds again what it held. That is right as long as it reads
nothing of that memory, which others may write until then: else it is refused. So are writes by which something gets a
history, since that would have to be taken back, and of what nobody else has but an op of the function keeps: what is
saved for one Function that checks it would be checked for all.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.storage_state import StorageState
from aotcheck.autograd.ir.trace import Geometry, Value, geometry_of
from aotcheck.autograd.replicas.sparse import SparseReplica
from aotcheck.autograd.state.gradients import own_gradient, set_own_gradient
from aotcheck.autograd.tracing.inner_backwards import Brought, InnerBackwards

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer


@dataclasses.dataclass(frozen=True)
class Written:
    """A storage that a backward wrote: what its root held before and holds then.

    ``seen`` if a version counter moved.
    """

    state: StorageState
    before: Value
    after: Value
    seen: bool


@dataclasses.dataclass(frozen=True)
class Reshaped:
    """A tensor whose geometry a backward changed."""

    tensor: Tensor
    before: Geometry
    after: Geometry


@dataclasses.dataclass(frozen=True)
class BackwardTrace:
    """A traced backward: the gradients that arrive at each target, as replicas and as read; the tangents' replicas.

    ``draws`` are the random numbers drawn, ``written`` and ``reshaped`` what it left changed, ``versions`` those that
    tensors had by then of memory that it wrote, ``brought`` what backwards inside it brought to leaves.
    """

    gradients: list[Tensor | None]
    values: list[Any]
    seeds: list[Tensor]
    draws: tuple[Value, ...]
    written: tuple[Written, ...]
    reshaped: tuple[Reshaped, ...]
    versions: tuple[tuple[Tensor, int], ...] = ()
    brought: tuple[Brought, ...] = ()


def at_versions(versions: Sequence[tuple[Tensor, int]]) -> contextlib.AbstractContextManager[None]:
    """Inside, the tensors have these versions."""
    return _at_versions(versions) if versions else contextlib.nullcontext()


@contextlib.contextmanager
def _at_versions(versions: Sequence[tuple[Tensor, int]]) -> Iterator[None]:
    before = [(t, _torch.version_of(t)) for t, _ in versions]
    try:
        for t, version in versions:
            _torch.set_version(t, version)
        yield
    finally:
        for t, version in reversed(before):
            _torch.set_version(t, version)


def nothing_to_note(t: Tensor, elsewhere: bool) -> None:
    """What a tracer does about a tensor that is about to be reshaped while no backward is traced."""


class Sandbox:
    """Entered around a traced backward; leaving it undoes what the backward did to what was there before.

    ``live`` says of storages what their roots hold in the backward.
    """

    def __init__(self, tracer: Tracer, live: Mapping[int, tuple[StorageState, Value]]) -> None:
        self.tracer = tracer
        self.live = live
        self._undo: list[Callable[[], None]] = []
        self._versions: dict[int, tuple[Tensor, int]] = {}
        self._states: dict[int, tuple[StorageState, Value]] = {}
        self._geometries: dict[int, tuple[Tensor, Geometry]] = {}
        self.there: list[Tensor] = []
        self.effects = 0

    def __enter__(self) -> Sandbox:
        """Let the tracer tell of first writes to what is there already."""
        table = self.tracer.table
        self.there = list(self.tracer.kernels.alive)
        self.effects = len(self.tracer.trace.effects)
        table.begin_epoch(self._first_write)
        self.tracer.on_reshaping = self._first_reshaping
        for state, value in self.live.values():
            table.flush(state)
            self._undo.append(state.snapshot())
            table.replace(state, value)
            self._states[id(state)] = (state, value)
        return self

    def __exit__(self, *_: object) -> None:
        """Undo everything."""
        self.tracer.table.end_epoch()
        self.tracer.on_reshaping = nothing_to_note
        del self.tracer.trace.effects[self.effects :]
        if self._geometries:
            with _torch.without_modes():
                self._put_back()
        for undo in reversed(self._undo):
            undo()
        for t, version in self._versions.values():
            _torch.set_version(t, version)

    def _put_back(self) -> None:
        for t, geometry in self._geometries.values():
            with _torch.meta_kernels():
                _torch.set_geometry(t, _torch.storage_of(t), geometry.offset, geometry.shape, geometry.stride)
            self.tracer.regeometried.discard(id(t))

    def _first_write(self, state: StorageState) -> None:
        table = self.tracer.table
        table.flush(state)
        if len(state.roots) != 1 or state.roots[0].value is None:
            raise UnsupportedError("mutation in the backward", "of one of several arguments that share memory")
        if id(state) not in self._states:
            self._states[id(state)] = (state, state.roots[0].value)
            self._undo.append(state.snapshot())
        self._keep_versions(state)

    def _keep_versions(self, state: StorageState) -> None:
        for t in self.there:
            if type(t) is SparseReplica:
                continue
            if _torch.storage_address(_torch.storage_of(t)) == _torch.storage_address(state.storage):
                version = _torch.version_of(t)
                if version >= 0:
                    self._versions.setdefault(id(t), (t, version))

    def _first_reshaping(self, t: Tensor, elsewhere: bool) -> None:
        if id(t) not in self._geometries and any(x is t for x in self.there):
            if elsewhere:
                raise UnsupportedError("mutation in the backward", "of the storage of a tensor from the forward")
            self._geometries[id(t)] = (t, geometry_of(t))
            self._keep_versions(self.tracer.table.state(t))

    def traced(
        self,
        gradients: list[Tensor | None],
        seeds: list[Tensor],
        read: Callable[[Tensor], Any],
        within: InnerBackwards | None = None,
    ) -> BackwardTrace:
        """The backward that is over, what its gradients hold read by ``read``."""
        values = [None if g is None else read(g) for g in gradients]
        versions = tuple([(t, _torch.version_of(t)) for t, _ in self._versions.values()])
        brought = () if within is None else within.brought(read)
        return BackwardTrace(gradients, values, seeds, self.draws(), self.written(), self.reshaped(), versions, brought)

    def written(self) -> tuple[Written, ...]:
        """What was written so far."""
        if not self._states:
            return ()
        found = []
        table = self.tracer.table
        moved = {
            _torch.storage_address(_torch.storage_of(t))
            for t, version in self._versions.values()
            if _torch.version_of(t) != version
        }
        for state, before in self._states.values():
            if len(state.roots) != 1:
                raise UnsupportedError("mutation in the backward", "by a window that its argument does not contain")
            after = table.read_view(state.roots[0])
            if after is not before:
                found.append(Written(state, before, after, _torch.storage_address(state.storage) in moved))
        return tuple(found)

    def reshaped(self) -> tuple[Reshaped, ...]:
        """The tensors that changed their geometry so far."""
        if not self._geometries:
            return ()
        changed = [(t, before, geometry_of(t)) for t, before in self._geometries.values()]
        return tuple(Reshaped(t, before, after) for t, before, after in changed if before != after)

    def draws(self) -> tuple[Value, ...]:
        """The random ops so far."""
        return tuple(self.tracer.trace.effects[self.effects :])


class SetAside:
    """Entered around a backward that accumulates: the gradients of ``leaves``, some None, are not in its way."""

    def __init__(self, leaves: Sequence[Tensor | None]) -> None:
        self.leaves = leaves
        self._before: list[Any] = []

    def __enter__(self) -> SetAside:
        """Take the gradients away."""
        self._before = self.accumulated()
        for t in self.leaves:
            if t is not None:
                set_own_gradient(t, None)
        return self

    def __exit__(self, *_: object) -> None:
        """Give them back."""
        for t, before in zip(self.leaves, self._before, strict=True):
            if t is not None:
                set_own_gradient(t, before)

    def accumulated(self) -> list[Tensor | None]:
        """What was accumulated meanwhile."""
        return [None if t is None else own_gradient(t) for t in self.leaves]
