"""joint: the backward of each component, recorded after the forward.

Note [Memory that the caller sees]
What eager saves is memory, not values: a backward reads what the memory of an argument or a result then holds. So
before backwards are traced, the values that views of such memory have are forgotten, but for one of the whole: the
result, or a node that stands for the argument as the call leaves it. A backward then computes the views again from it:
it looks values up by storage and geometry (see trace/view.py), as autograd unpacks other objects than were saved.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.analyze.analysis import Analysis
from aotcheck.autograd2.errors import UnsupportedError
from aotcheck.autograd2.ir.graph import PLACEHOLDER, Node, placeholder
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.ir.signature import Mutation
from aotcheck.autograd2.joint.regions import Component, Region, edge_of
from aotcheck.autograd2.trace.functions import python_functions
from aotcheck.autograd2.trace.gate import Event, raised_by_user, refuse
from aotcheck.autograd2.trace.replica import Replica, state_of
from aotcheck.autograd2.trace.run import Traced
from aotcheck.autograd2.trace.view import StorageState, View


class Request(NamedTuple):
    """What a backward is given, and asked for.

    Args:
        defined: for each tangent of the component, whether there is one.
        inputs: for each input, whether its gradient is asked for; None if all are. Empty if those of results are.
        casts: the devices of which autocast is on, and its dtype there.
        strides: those of the tangents that there are; None if they lie as the component says.
    """

    defined: tuple[bool, ...]
    inputs: tuple[bool, ...] | None = None
    casts: tuple[tuple[str, torch.dtype], ...] = ()
    strides: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, eq=False)
class Backward:
    """A backward of a component.

    Args:
        component: of which results.
        request: for which tangents and inputs.
        tangents: a placeholder for each defined tangent.
        geometries: how each of these lies.
        gradients: for each input of the component, what it gets, or None.
        effects: what it runs besides: random ops, and ops that return nothing.
        error: what eager's backward raises.
    """

    component: Component
    request: Request
    tangents: tuple[Node, ...]
    geometries: tuple[Geometry, ...]
    gradients: tuple[Node | None, ...]
    effects: tuple[Node, ...] = ()
    error: BaseException | None = None


def trace_all(traced: Traced, region: Region) -> tuple[Backward, ...]:
    """The backward for all tangents and inputs. If that raises, those for one by one too, which save what they need."""
    defined = (True,) * len(region.starts)
    whole = trace_backward(traced, region, Request(defined))
    if whole.error is None:
        return (whole,)
    begins, asked = ([tuple(j == k for j in range(n)) for k in range(n)] for n in (len(defined), len(region.ends)))
    return (whole, *[trace_backward(traced, region, Request(*r)) for r in itertools.product(begins, asked)])


def trace_backward(traced: Traced, region: Region, request: Request) -> Backward:
    """Record the backward of a component.

    Raises:
        UnsupportedError: the backward does what cannot be traced.
    """
    tracer, component = traced.tracer, region.component
    starts, tangents, geometries = [], [], []
    nodes: list[Node] = []
    undefined = not any(request.defined)
    for start, (lies, device), wanted in zip(region.starts, component.tangents, request.defined, strict=True):
        if wanted or undefined:
            if wanted and request.strides is not None:
                lies = lies._replace(stride=request.strides[len(nodes)])
            node = placeholder(lies, device)
            starts.append(edge_of(start))
            tangents.append(tracer.fresh_at(lies, node, device))
        if wanted:
            nodes.append(node)
            geometries.append(lies)
    asked = [k for k in range(len(region.ends)) if request.inputs is None or (request.inputs and request.inputs[k])]
    gradients: list[Node | None] = [None] * max(len(region.ends), 1)
    given = component, request, tuple(nodes), tuple(geometries)
    dropped = region.dropped if request.inputs is None else ()
    if not (asked or dropped) and request.inputs and len(request.defined) > 1:
        return Backward(*given, tuple(gradients))  # results were asked for; which, nobody tells
    before, tracer.in_backward = len(tracer.graph.effects), True
    tracer.table.backwards_begun += 1
    try:
        with torch.inference_mode(False), contextlib.ExitStack() as stack:  # first: its end restores autocast too
            modes: list[Any] = [_torch.single_threaded_backward(), python_functions(tracer), _torch.autocast_off()]
            modes += [torch.autocast(device, dtype=dtype) for device, dtype in request.casts]
            for mode in [*modes, tracer.draws.stretch(), tracer, _stopping(region, undefined)]:
                stack.enter_context(mode)
            ends = [*[edge_of(region.ends[k]) for k in asked], *dropped]
            if not ends:  # it may raise; where nothing is asked for, the result was, and its node alone runs
                last = None if request.inputs is None else starts
                torch.autograd.backward(starts, tangents, retain_graph=True, inputs=last)
            found = torch.autograd.grad(starts, ends, tangents, allow_unused=True, retain_graph=True) if ends else ()
        for k, gradient in zip(asked, found, strict=False):
            if gradient is not None:
                if type(gradient) is not Replica:
                    refuse(Event.CAPTURED, "a gradient is no tensor of the trace")
                node = tracer.table.read(gradient)
                is_view = node in nodes and not any(gradient is t for t in tangents)
                gradients[k] = tracer.graph.view(torch.ops.aten.alias.default, node) if is_view else node
        return Backward(*given, tuple(gradients), tuple(tracer.graph.effects[before:]))
    except UnsupportedError:
        raise
    except _torch.GuardOnDataDependentSymNode:
        refuse(Event.DATA, "a backward branches on a size that data decide")
    except Exception as error:
        if "at::autocast" in str(error):  # of empty halves, which eager's kernels do not cast
            refuse(Event.CAST, str(error))
        if not (request.strides or _torch.tells_of_lost_values(error) or raised_by_user(error)):
            refuse(Event.CHECKPOINT if "use_reentrant" in str(error) else Event.REFUSES, str(error))
        return Backward(*given, tuple(gradients), (), error.with_traceback(None))
    finally:
        tracer.in_backward = False
        del tracer.graph.effects[before:]


@contextlib.contextmanager
def _stopping(region: Region, undefined: bool) -> Iterator[None]:
    """Inside, gradients that arrive at the ends of a component go no further, as where they are asked for beyond.

    With ``undefined`` none begins either: its nodes are run without.
    """
    places: dict[Any, set[int]] = {}
    for end in (*region.ends, *(region.starts if undefined else ())):
        if isinstance(end, tuple):
            places.setdefault(end[0], set()).add(end[1])

    def stop(at: set[int]) -> Any:
        return lambda gradients: tuple(None if k in at else g for k, g in enumerate(gradients))

    passes = undefined or region.beyond or not region.nodes.isdisjoint(places)
    hooks = [node.register_prehook(stop(at)) for node, at in places.items()] if passes else []
    hooks += [n.register_hook(lambda gradients, _: (None,) * len(gradients)) for n in region.beyond]
    try:
        with _torch.skipped([n for n in region.beyond if _torch.is_custom(n)]):
            yield
    finally:
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True, eq=False)
class SavedLate:
    """An input that is saved as the call leaves it.

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


def saved_late(traced: Traced, analysis: Analysis) -> tuple[SavedLate, ...]:
    """Let the table's values be those that memory has after the call."""
    effects, table = analysis.signature.effects, traced.tracer.table
    moved = {m.input for m in effects.moved if m.to is not None or m.counts}
    recorded = {traced.inputs[w.input].state for w in effects.written if w.kind is Mutation.DIFFERENTIABLE}
    results = {r.node for r in analysis.results}
    freed = [_freed(traced, m.input) for m in effects.moved if m.nbytes is not None and m.input not in moved]
    found = [late for late in freed if late is not None]
    for w in effects.written:
        state = traced.inputs[w.input].state
        if w.input in moved or state.lost is not None or state in recorded:
            continue
        view = table.flat(state) if w.flat else table.view_at(state, table.spelled(traced.inputs[w.input].geometry))
        found.append(SavedLate(_replaced(view), w.input, view.geometry.dtype if w.flat else None))
        _forget(state, view)
        taken = {view}
        for k, i in enumerate(traced.inputs if w.flat else ()):
            part = state.views.get(table.spelled(i.geometry))
            if i.state is state and i.node is not None and k not in moved and part is not None and part not in taken:
                found.append(SavedLate(_replaced(part), k))
                taken.add(part)
    for state in table.states.values():
        root = state.roots[0] if state.lost is None and len(state.roots) == 1 else None
        if root is not None and root.version == state.version and root.value in results:
            _forget(state, root)
    return tuple(found)


def check_counters(traced: Traced, analysis: Analysis, groups: Sequence[Region], saves_memory: bool) -> None:
    """Refuse where a write of the caller's may or may not be noticed, by which tensor eager saved."""
    at = traced.tracer.table.storage_state
    recorded = [w for w in analysis.signature.effects.written if w.kind is Mutation.DIFFERENTIABLE]
    lies: dict[tuple[StorageState, Geometry], Tensor] = {}
    stand = set(traced.position)
    for i in traced.inputs:
        there = lies.setdefault((i.state, traced.tracer.table.spelled(i.geometry)), i.real)
        if there is not i.real:
            i.state.own_counter |= any(_torch.shared_counters((there, i.real)).values())
            stand -= {i.replica}  # the graph takes the first
        state = at(i.replica)  # it may have moved to memory where another tensor lies
        state.own_counter |= state is not i.state
        if state is not i.state and i.state.needed:
            refuse(Event.STORAGE, f"{i.input.descriptor} moves, and a backward needs the memory where it lay")
    for t in analysis.tensors:  # by which the caller writes what a written argument was
        state = at(t)
        state.own_counter |= state_of(t).own_counter and any(traced.inputs[w.input].state is state for w in recorded)
    made = {at(t) for t in analysis.tensors}
    for state in traced.tracer.table.states.values():
        if state.needed and state.own_counter and (state.is_input or state in made):
            held = [h.saved for region in groups for h in region.held()]
            saved = [t for t in itertools.chain(*held) if type(t) is Replica and at(t) is state]
            known = [t for t in (*stand, *analysis.tensors) if type(t) is Replica and at(t) is state]
            if not all(held) or any(_torch.sharing_versions([*known, *saved])):
                unseen = not all(held) or any(_torch.is_custom(n) for region in groups for n in region.nodes)
                if unseen or not (saves_memory and _is_only_read(traced, analysis, state, saved)):
                    refuse(Event.COUNTERS)
                state.uncounted = True


def _is_only_read(traced: Traced, analysis: Analysis, state: StorageState, saved: Sequence[Tensor]) -> bool:
    """Whether a call leaves memory of inputs as it is, and eager saved tensors there whose counters nobody else has."""
    at, moved = traced.tracer.table.storage_state, {m.input for m in analysis.signature.effects.moved}
    on = [k for k, i in enumerate(traced.inputs) if state in (i.state, at(i.replica))]
    seen = [*(traced.inputs[k].replica for k in on), *(t for t in analysis.tensors if at(t) is state)]
    copied = any(v.value is not None and v.value.memory is None for v in state.views.values())
    if copied or state.version or state.touched or state.resized or state.flat or not moved.isdisjoint(on):
        return False
    return state.is_input and all(k >= len(seen) for k in _torch.sharing_versions([*seen, *saved])[len(seen) :])


def _replaced(view: View) -> Node:
    """What stands for the value of a view from now on."""
    node = placeholder(view.geometry, view.state.device)
    view.value, view.version = node, view.state.version
    return node


def _forget(state: StorageState, whole: View) -> None:
    """Views of ``whole`` have to be made of it again, but for those that are inputs themselves."""
    for view in state.views.values():
        if view is not whole and (state.version or view.value is None or view.value.op != PLACEHOLDER):
            view.version = -1


def _freed(traced: Traced, k: int) -> SavedLate | None:
    """An input that was all of a storage which the call freed."""
    state, g = traced.inputs[k].state, traced.inputs[k].geometry
    if (lost := state.lost) is None or state.nbytes != 0 or not g.is_contiguous or g.dtype != lost.geometry.dtype:
        return None
    if g.offset != 0 or (g.numel,) != lost.geometry.shape or g not in state.views:
        return None
    for view in state.views.values():
        view.value, view.version = None, -1
    node = _replaced(state.views[g])
    lost.value = traced.tracer.graph.view(torch.ops.aten.view.default, node, [-1])
    return SavedLate(node, k, freed=True)
