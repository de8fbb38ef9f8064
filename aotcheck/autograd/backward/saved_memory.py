"""What is saved of arguments that the call writes: their memory, not what the graph computed.

Note [Saved memory]
    A function that writes an argument and saves it, or a view of it, has the backward read the argument's memory. The
    graph computes what is written as a value of its own; to save that would keep a second copy, and would not show
    what the caller writes to the memory by ways that no version counter tells of (another leaf on the same storage).
    So where a value is what a tensor that eager saves holds in the end, on an argument's storage, a window on that is
    saved. Writes that counters do tell of are watched all the same: see Note [Written since].

    So is a window on a result, where the function wrote to the memory of that after it was made.

    Of an argument that eager saves only views of, an alias is saved: whoever gives the argument other data later
    (``w.data = ...`` between a layer and its backward) does not change what that reads.

    An argument that was put elsewhere by ``.data =`` may lie in a result's memory, and counts versions as before:
    where eager saves the argument, its backward reads what the caller writes to the result, and does not object.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from torch import Tensor
from torch.autograd.function import BackwardCFunction

from aotcheck import _torch
from aotcheck._torch import pytree
from aotcheck.autograd.backward.kept import itself, kept_behind
from aotcheck.autograd.backward.stage import Stage
from aotcheck.autograd.effects.capture import Capture
from aotcheck.autograd.ir.places import Move
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.ir.storage_state import View
from aotcheck.autograd.ir.trace import PLACEHOLDER, Geometry, Value, geometry_of
from aotcheck.autograd.ops.twins import viewed
from aotcheck.autograd.record.record import Role
from aotcheck.autograd.record.steps import Arg, Result
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.runtime.attachments import Window
from aotcheck.autograd.tensors.subclasses import leaves_of

__all__ = ["lies_as", "saved_by_views", "saved_memory"]


def saved_memory(capture: Capture, stages: Sequence[Stage], saved: Sequence[Value]) -> dict[int, Window]:
    """Which of the values ``saved`` lie in memory that the caller has by other ways when the call ends, and where."""
    written, moved = capture.record.written_placeholders, capture.maker.kernels.moved
    # What is made inside and written there: the graph may compute what is saved of it apart from the result.
    made = False
    for state in capture.tracer.table.states.values():
        if state.version and not state.is_input:
            made = True
            break
    if not written and not moved and not made:
        return {}
    # The memory of arguments that are not written is saved as it is.
    places = {
        v: k for k, v in enumerate(saved) if v.memory in written or (v.memory is None and v.op is not PLACEHOLDER)
    }
    there = {id(r.state): r.source for r in reversed(capture.roots) if written and capture.stays(r)}
    results = _results(capture) if moved or made else {}
    # Of these a write is to be noticed, as it is where the result itself is saved.
    watched = {stage.saved[n] for stage in stages for which in stage.checked for n in which}
    shown = set() if moved else {o.value for o in capture.record.outputs}  # views of these lie in their memory anyway
    found: dict[int, Window] = {}
    if not places or not (there or results):
        return found
    for stage in stages:
        for kept in kept_behind(capture, stage):
            for t in [x for held in kept or () for x in leaves_of(itself(capture, held))]:
                if is_sparse(t):
                    continue
                for read in _read_by(capture, t):
                    view = read if read.value in places else _saved_for(read, places)
                    key = id(read.state)
                    if view is None or view.value is None:
                        continue
                    if key not in there and (
                        key not in results or view.value in watched or viewed(view.value, shown) in shown
                    ):
                        continue
                    if lies_as(view.value, view.geometry):
                        holder, anchor = (there[key], None) if key in there else results[key]
                        argument = _given_data(capture, t, view)
                        found[places[view.value]] = Window(holder, view.geometry, anchor, argument)
    return found


def saved_by_views(capture: Capture, stages: Sequence[Stage], saved: Sequence[Value]) -> set[Value]:
    """Which of the values ``saved`` are arguments that eager does not save themselves: see Note [Saved memory]."""
    found: set[Value] = set()
    if not capture.tracer.views or capture.wrappers:
        return found
    roots = {r.placeholder: id(r.replica) for r in capture.roots if type(r.replica) is Replica and not r.inference}
    known = [v for v in saved if v in roots]
    if known:
        kept = {id(t) for stage in stages for held in kept_behind(capture, stage) for t in held or ()}
        kept |= {id(t) for stage in stages if stage.custom for t in _in_attributes(stage)}
        found.update(v for v in known if roots[v] not in kept)
    return found


def _in_attributes(stage: Stage) -> Iterator[Tensor]:
    """The tensors that custom Functions behind the stage's keep in attributes of their contexts."""
    for node in {n for nodes in stage.behind() for n in nodes if isinstance(n, BackwardCFunction)}:
        yield from (x for x in pytree.tree_leaves(list(vars(node).values())) if isinstance(x, Tensor))


def _given_data(capture: Capture, t: Tensor, view: View) -> Arg | None:
    """The argument that ``t`` is, if ``.data =`` put it where the ``view`` is; eager goes wherever it is put later."""
    left = capture.maker.kernels.left.get(id(t), ())
    if not left or any(x.move is not Move.DATA or x.inference for x in left) or view.geometry != geometry_of(t):
        return None
    if capture.record.entry_inference or t.is_inference() or any(r.inference for r in capture.record.roots):
        return None
    # Writes are counted after it is saved.
    there = (a for a in capture.arguments if a.replica is t and _torch.version_of(t) == a.version)
    return next((Arg(a.index) for a in there), None)


def _read_by(capture: Capture, t: Tensor) -> list[View]:
    """The windows that a backward may read where eager saves ``t``, if it is known what they hold.

    Of memory that was freed it is also other windows on it: see Note [Lost memory].
    """
    table = capture.tracer.table
    view, state = table.view_beside_writes(t), table.state(t)  # a result that its own op keeps is no replica
    known = [] if view is None else [view]
    if state.lost is None:
        return known
    there = [geometry_of(a.replica).reach for a in capture.arguments if table.state(a.replica) is state]
    room = max([*there, state.storage.nbytes()])  # while the epilogue runs
    lost = [v for v in state.views.values() if v.version == state.version and not v.fits and v.geometry.reach <= room]
    return lost or known


def _saved_for(read: View, saved: Container[Value]) -> View | None:
    """What a backward makes the view ``read`` of: the window that holds one of the values ``saved`` now, or None."""
    if read.value is None or (value := viewed(read.value, saved)) not in saved:
        return None
    state = read.state
    windows = [*state.views.values(), *([state.flat] if state.flat is not None else [])]
    return next((v for v in windows if v.value is value and v.version == state.version), None)


def _results(capture: Capture) -> dict[int, tuple[Result, int]]:
    """By the storage, a new one, a result on it and its offset there."""
    found, table = {}, capture.tracer.table
    whole = {s.flat.value: s for s in table.states.values() if s.flat is not None and not s.is_input}
    for k, o in enumerate(capture.record.outputs):
        if o.role is Role.MUTATED_INPUT:
            continue
        if o.tensor is None and o.value in whole:
            found[id(whole[o.value])] = Result(k), 0
        elif type(o.tensor) is Replica:
            found[id(table.state(o.tensor))] = Result(k), geometry_of(o.tensor).offset
    return found


def lies_as(value: Value, g: Geometry) -> bool:
    """Whether the backward's graph, made for ``value``, takes a window of this geometry in its place."""
    of = value.geometry
    if of is None or g.conj or g.neg or of.conj or of.neg:
        return False
    return (of.shape, of.stride, of.dtype) == (g.shape, g.stride, g.dtype)
