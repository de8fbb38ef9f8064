"""Memory that the caller sees after the call, and from which a backward reads what eager saved.

What eager saves is memory, not values: a backward reads what the memory of an argument or a result then holds. So
before backwards are traced, the values that views of such memory have are forgotten, but for one of the whole: the
result, or a node that stands for the argument as the call leaves it. A backward then computes the views again from it:
it looks values up by storage and geometry (see trace/view.py), as autograd unpacks other objects than were saved.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from aotcheck.autograd2.analyze.analysis import Analysis
from aotcheck.autograd2.ir.graph import PLACEHOLDER, Node
from aotcheck.autograd2.ir.signature import Mutation
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.replica import state_of
from aotcheck.autograd2.trace.run import Traced
from aotcheck.autograd2.trace.view import StorageState, View

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class InputAfter:
    """An input as the call leaves it.

    Args:
        node: stands for it in backwards.
        input: which one.
        flat: the dtype, if it is the whole storage in one dimension.
        freed: whether the call frees its memory, so that the caller must fill it again before the backward.
    """

    node: Node
    input: int
    flat: torch.dtype | None = None
    freed: bool = False


def inputs_after(traced: Traced, analysis: Analysis) -> tuple[InputAfter, ...]:
    """Let the table's values be those that memory has after the call."""
    effects, table = analysis.signature.effects, traced.tracer.table
    moved = {m.input for m in effects.moved if m.to is not None or m.counts}
    recorded = {traced.inputs[w.input].state for w in effects.written if w.kind is Mutation.DIFFERENTIABLE}
    results = {r.node for r in analysis.results}
    freed = [_freed(traced, m.input) for m in effects.moved if m.nbytes is not None and m.input not in moved]
    found = [after for after in freed if after is not None]
    for w in effects.written:
        state = traced.inputs[w.input].state
        if w.input in moved or state.lost is not None or state in recorded:
            continue
        view = table.flat(state) if w.flat else table.view_at(state, table.spelled(traced.inputs[w.input].geometry))
        view.value, view.version = _stands_for(view), state.version
        found.append(InputAfter(view.value, w.input, view.geometry.dtype if w.flat else None))
        _forget(state, view)
        for k, i in enumerate(traced.inputs if w.flat else ()):
            part = state.views.get(i.geometry)
            if i.state is state and i.node is not None and k not in moved and part not in (None, view):
                part.value, part.version = _stands_for(part), state.version
                found.append(InputAfter(part.value, k))
    for state in table.states.values():
        root = state.roots[0] if state.lost is None and len(state.roots) == 1 else None
        if root is not None and root.version == state.version and root.value in results:
            _forget(state, root)
    return tuple(found)


def check_counters(traced: Traced, analysis: Analysis) -> None:
    """Refuse where a write of the caller's may or may not be noticed, by which tensor eager saved."""
    results = {r.node for r in analysis.results}
    recorded = [w for w in analysis.signature.effects.written if w.kind is Mutation.DIFFERENTIABLE]
    for i in traced.inputs:  # one that moved to memory where another tensor lies
        state = traced.tracer.table.storage_state(i.replica)
        state.own_counter |= state is not i.state
        if state is not i.state and i.state.needed:
            refuse(Event.STORAGE, f"{i.input.descriptor} moves, and a backward needs the memory where it lay")
    for t in analysis.tensors:  # by which the caller writes what a written argument was
        state = traced.tracer.table.storage_state(t)
        state.own_counter |= state_of(t).own_counter and any(traced.inputs[w.input].state is state for w in recorded)
    for state in traced.tracer.table.states.values():
        seen = state.is_input or any(view.value in results for view in state.views.values())
        if state.needed and state.own_counter and seen:
            refuse(Event.COUNTERS)


def _stands_for(view: View) -> Node:
    node = Node(PLACEHOLDER)
    node.geometry, node.device, node.memory = view.geometry, view.state.device, node
    return node


def _forget(state: StorageState, whole: View) -> None:
    """Views of ``whole`` have to be made of it again, but for those that are inputs themselves."""
    for view in state.views.values():
        if view is not whole and (state.version or view.value is None or view.value.op != PLACEHOLDER):
            view.version = -1


def _freed(traced: Traced, k: int) -> InputAfter | None:
    """An input that was all of a storage which the call freed."""
    state, g = traced.inputs[k].state, traced.inputs[k].geometry
    lost = state.lost
    if lost is None or state.nbytes != 0 or not g.is_contiguous or g.dtype != lost.geometry.dtype:
        return None
    if g.offset != 0 or (g.numel,) != lost.geometry.shape or g not in state.views:
        return None
    for view in state.views.values():
        view.value, view.version = None, -1
    whole = state.views[g]
    whole.value, whole.version = _stands_for(whole), state.version
    lost.value = traced.tracer.graph.view(aten.view.default, whole.value, [-1])
    return InputAfter(whole.value, k, freed=True)
