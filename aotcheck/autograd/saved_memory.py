"""What is saved of arguments that the call writes: their memory, not what the graph computed.

Note [Saved memory]
    A function that writes an argument and saves it, or a view of it, has the backward read the argument's memory. The
    graph computes what is written as a value of its own; to save that would keep a second copy, and would not show
    what the caller writes to the memory by ways that no version counter tells of (another leaf on the same storage).
    So where a value is what a tensor that eager saves holds in the end, on an argument's storage, a window on that is
    saved. Writes that counters do tell of are watched all the same: see Note [Written since].
"""

from __future__ import annotations

from collections.abc import Sequence

from aotcheck.autograd.capture import Capture
from aotcheck.autograd.kept import kept_behind
from aotcheck.autograd.runtime.attachments import Window
from aotcheck.autograd.sparse_geometry import is_sparse
from aotcheck.autograd.stage import Stage
from aotcheck.autograd.subclasses import leaves_of
from aotcheck.autograd.trace import PLACEHOLDER, Geometry, Value

__all__ = ["saved_memory"]


def saved_memory(capture: Capture, stages: Sequence[Stage], saved: Sequence[Value]) -> dict[int, Window]:
    """Which of the values ``saved`` lie in an argument's memory when the call ends, and where."""
    written = capture.record.written_placeholders
    places = {
        v: k for k, v in enumerate(saved) if v.op is not PLACEHOLDER and (v.memory is None or v.memory in written)
    }  # the memory of arguments that are not written is saved as it is
    table = capture.tracer.table
    holders = {id(r.state): r.source for r in reversed(capture.roots) if capture.stays(r)}
    found: dict[int, Window] = {}
    if not places or not holders or not written:
        return found
    for stage in stages:
        for kept in kept_behind(capture, stage):
            for t in [x for held in kept or () for x in leaves_of(held)]:
                view = None if is_sparse(t) else table.known_view(t)  # a result that its own op keeps is no replica
                if view is None or view.value not in places:
                    continue
                if id(view.state) in holders and _laid_out_as(view.value, view.geometry):
                    found[places[view.value]] = Window(holders[id(view.state)], view.geometry, None)
    return found


def _laid_out_as(value: Value, g: Geometry) -> bool:
    """Whether the backward's graph, made for ``value``, takes a window of this geometry in its place."""
    of = value.geometry
    if of is None or g.conj or g.neg or of.conj or of.neg:
        return False
    return (of.shape, of.stride, of.dtype) == (g.shape, g.stride, g.dtype)
