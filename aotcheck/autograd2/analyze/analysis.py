"""analyze: the signature of a trace, and the results that its graph has to give.

First what the call did to its inputs: data, geometry, storage, and what autograd knows of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.analyze.results import Result, Results, is_lost, requires_grad
from aotcheck.autograd2.frontend.bind import Bound, Itself
from aotcheck.autograd2.ir import signature as sig
from aotcheck.autograd2.ir.meta import geometry_of, is_leaf
from aotcheck.autograd2.ir.structure import GONE, Structure, take_apart
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.replica import Needs, Replica, state_of
from aotcheck.autograd2.trace.run import Traced, TracedInput
from aotcheck.autograd2.trace.view import StorageState


def more_needs(traced: Traced) -> Needs:
    """What the next trace must take into account beside what this one did, or the same."""
    bases = False
    for state, positions in _storages(traced).items():
        members = [traced.inputs[k] for k in positions]
        shares = len(members) > 1 or state_of(members[0].replica).was_a_view
        recorded = shares and (state.version or state.touched) and any(map(has_new_history, members))
        told = shares and any(state_of(i.replica).set is not None for i in members)
        views = [i for i in members if _is_recorded_view(i) and (state.version or state.touched or has_new_history(i))]
        bases |= bool(recorded or told or views)
    leaves = [i.replica for i in traced.inputs if i.input.meta.is_leaf and is_leaf(i.replica)]
    return traced.tracer.needs.also(bases=bases, gradients=any(_torch.gradient_of(t) is not None for t in leaves))


def _is_recorded_view(i: TracedInput) -> bool:
    """Whether an input is a view that autograd will not have written as it writes other tensors."""
    base = _torch.base_of(i.real)
    return base is not None and (base.requires_grad or i.real.requires_grad or not _is_plain(i.real))


def _is_plain(t: Tensor) -> bool:
    """Whether autograd makes ``t`` again if it is a view and its base is written."""
    return _torch.base_of(t) is None or bool(_torch.creation_meta(t) == _torch.CreationMeta.DEFAULT)


def _storages(traced: Traced) -> dict[StorageState, list[int]]:
    """The storages that inputs lay on at entry, with the positions of these inputs."""
    found: dict[StorageState, list[int]] = {}
    for k, i in enumerate(traced.inputs):
        found.setdefault(i.state, []).append(k)
    return found


def has_new_history(i: TracedInput) -> bool:
    """Whether an input has another grad_fn than it had at entry."""
    known = i.node is not None or not is_lost(i.replica)
    return known and requires_grad(i.replica) and i.replica.grad_fn not in (None, i.grad_fn)


def _is_late(i: TracedInput, given: sig.Given, elsewhere: bool, made: list[sig.How]) -> bool:
    """Whether an input moves after what is computed of it gets its history: its gradients have the old shape."""
    t, shape, by_data = i.replica, tuple(i.replica.shape), elsewhere and state_of(i.replica).data_assigned
    if not (t.requires_grad and is_leaf(t)) or (leads := _torch.accumulator_of(t)) is None:
        return by_data
    expected = _torch.recorded_gradient(leads, 0)[0]
    viewed = any(isinstance(how, sig.Alias) and how.base == given and how.steps and not how.unmoved for how in made)
    third = expected != i.geometry.shape
    unsure = elsewhere and not state_of(t).is_reset
    if (third and (unsure or expected != shape)) or (viewed and expected != shape):
        refuse(Event.HISTORY, f"{i.input.descriptor} is used in several shapes, or in a new one")
    return (by_data and not viewed) or expected != shape


def data_mutations(traced: Traced, results: Results) -> Iterator[sig.Written]:
    """Inputs whose data changed."""
    table = traced.tracer.table
    for state, members in _storages(traced).items():
        if table.is_resized(state):
            table.flat(state)
        table.flush(state)
        roots = [k for k in members if traced.inputs[k].node is not None]
        apart = state.flat is None and table.apart(state)
        for some in [[k] for k in roots] if apart else [roots]:
            yield from _written(traced, results, some, tuple(members))


def _written(traced: Traced, results: Results, roots: list[int], members: tuple[int, ...]) -> Iterator[sig.Written]:
    """What is written of inputs that share memory, which are no views of others; ``members``: all on that storage.

    One that gets a history is written as it lies, with that history. Without one, a single input is written as it lies;
    of several, or where bytes beside it changed, the storage's flat value is. ``counted`` are those whose version
    counts the write.
    """
    table, state, first = traced.tracer.table, traced.inputs[roots[0]].state, traced.inputs[roots[0]]
    recorded = [k for k in roots if has_new_history(traced.inputs[k])]
    counted = tuple(k for k in roots if _torch.version_of(traced.inputs[k].replica) != traced.inputs[k].version)
    whole = state.flat is not None or len(roots) > 1
    root = None if whole else table.view_at(state, table.spelled(first.geometry))
    if not (state.version if root is None else root.version) and not (state.touched and (recorded or counted)):
        return
    if len(recorded) > 1:
        refuse(Event.HISTORY, "two arguments that share memory are written, and neither is a view of the other")
    if recorded:
        (k,) = recorded
        i = traced.inputs[k]
        if traced.modes[1]:  # inference mode
            refuse(Event.INFERENCE, f"{i.input.descriptor} gets a grad_fn")
        if table.storage_state(i.replica) is not state or geometry_of(i.replica) != table.spelled(i.geometry):
            refuse(Event.STORAGE, f"{i.input.descriptor} is written and gets another shape or storage")
        if (i.input.meta.requires_grad and i.input.meta.is_leaf) or state_of(i.replica).told:
            refuse(Event.LEAF, f"{i.input.descriptor} is written once it does not require grad, or requires it")
        if i.geometry.may_overlap_itself:
            refuse(Event.OVERLAP, f"{i.input.descriptor}, whose elements share memory, is written")
        if i.geometry.is_beyond(state.nbytes):
            refuse(Event.FREED, f"{i.input.descriptor} is written, and has a grad_fn or gets one")
        index = results.add(table.read(i.replica), i.geometry, i.replica)
        by_view = type(i.replica.grad_fn).__name__ == "CopySlices"
        yield sig.Written(k, index, sig.Mutation.DIFFERENTIABLE, on_storage=members, by_view=by_view)
        if len(roots) == 1 and state.flat is None:
            return
        counted = tuple(j for j in counted if j != k)
    view = table.flat(state) if root is None or recorded or first.geometry.may_overlap_itself else root
    index = results.add(table.read_view(view), view.geometry)
    kind = sig.Mutation.UNRECORDED if counted or recorded else sig.Mutation.HIDDEN
    flat = view is not root
    yield sig.Written((recorded or roots)[0], index, kind, flat, counted if flat else (), members)


def metadata_mutations(traced: Traced, results: Results) -> tuple[sig.MetadataMutation, ...]:
    """Inputs of which something else changed than data."""
    resized = [s for s in _storages(traced) if s.resized]
    found = [sig.MetadataMutation(s.source, nbytes=s.nbytes) for s in resized if s.source is not None]
    for k, i in enumerate(traced.inputs):
        t, meta = i.replica, i.input.meta
        now, geometry = traced.tracer.table.storage_state(t), geometry_of(t)
        lost = i.node is None and is_lost(i.replica)  # as its version was counted up
        other_storage, other_geometry = now is not i.state, geometry != traced.tracer.table.spelled(i.geometry)
        needs = meta.requires_grad if lost else requires_grad(t)
        other_geometry |= (lost and not i.state.version) or (state_of(t).born is not None and not needs)
        late = state_of(t).born is not None and _is_late(i, sig.Given(k), other_storage, results.made)
        written = i.state.version or i.state.touched
        if i.node is None and has_new_history(i):
            moved = i.state.resized or geometry.neg or state_of(t).set or state_of(t).born
            of = None if moved or not written else traced.input_of(_torch.base_of(t))
            base = None if of is None else traced.inputs[of]
            if base is None or (state_of(base.replica).detached and not has_new_history(base)):
                refuse(Event.HISTORY, f"{i.input.descriptor} is a view whose history is not that of its base")
        beyond = (moves := other_storage or other_geometry) and geometry.is_beyond(now.nbytes)
        reshapes = () if other_storage or meta.is_leaf else state_of(t).reshapes
        if reshapes and i.node is not None and has_new_history(i):
            shared = state_of(t).data_assigned or sum(j.state is i.state for j in traced.inputs) > 1
            if i.real.retains_grad or (shared and not written):
                refuse(Event.HISTORY, f"{i.input.descriptor} is reshaped in place, and has views, data or a .grad")
            if not written:
                found.append(sig.MetadataMutation(k, reshapes=reshapes))
                continue
        itself = state_of(t).is_reset and not moves  # set_ to where it lay, after which gradients arrive elsewhere
        if needs and (itself or (moves and ((not lost and not t.is_leaf) or geometry[3:] != i.geometry[3:]))):
            refuse(Event.STORAGE, f"{i.input.descriptor}")
        regrown = now.resized or traced.tracer.table.is_resized(now) or beyond
        if regrown and (other_storage or (beyond and geometry.is_beyond(_torch.storage_of(i.real).nbytes()))):
            refuse(Event.STORAGE, f"{i.input.descriptor} moves to memory of another size than it has in the end")
        if moves:
            beside = [j for j in traced.inputs if j.state is i.state and has_new_history(j)]
            if beside and needs and not meta.requires_grad:
                refuse(Event.LEAF, f"{i.input.descriptor} is written, moves and is to require grad")
            if other_storage and now.version and now.source is None:
                traced.tracer.table.flat(now)
            at = 0 if beyond else len(found)  # before its storage shrinks
            counts, resets = not state_of(t).data_assigned, state_of(t).is_reset
            found.insert(at, sig.MetadataMutation(k, results.at(t), counts, late, resets=resets))
        elif i.node and not written and _torch.version_of(t) != i.version:
            if not _is_plain(i.real):
                refuse(Event.NO_GRAD_VIEW, f"{i.input.descriptor}")
            if not state_of(t).was_a_view:
                found.append(sig.MetadataMutation(k, counts=True))  # as for an alias that moved
            elif needs and not meta.is_leaf:  # it gets another grad_fn; uses from before lead to the first
                refuse(Event.HISTORY, f"{i.input.descriptor} is a view, and an alias of its base was reshaped in place")
        by_base = i.node is None and not state_of(t).told  # views require grad as their base does
        if needs != meta.requires_grad and not (needs and (by_base or t.grad_fn is not None)):
            if not needs and any(j.state is i.state and j is not i for j in traced.inputs):
                refuse(Event.HISTORY, f"{i.input.descriptor} is detached, and shares memory with another argument")
            found.append(sig.MetadataMutation(k, requires_grad=needs))
        elif meta.requires_grad and needs and not meta.is_leaf and (state_of(t).detached or is_leaf(t)):
            refuse(Event.HISTORY, f"{i.input.descriptor} is detached and requires grad again")
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Analysis:
    """What a specialization does, and the graph's results; ``tensors`` are the replicas of what it makes."""

    signature: sig.Signature
    results: tuple[Result, ...]
    tensors: tuple[Tensor, ...]


def analyze(traced: Traced) -> Analysis:
    """Read off the states of the trace what the call did."""
    results = Results(traced)
    written = tuple(data_mutations(traced, results))
    shared = _Shared(traced)
    tensors: list[Tensor] = []
    position: dict[Tensor, int] = {}

    def leaf(t: Tensor) -> int:
        if (k := position.setdefault(t, len(tensors))) == len(tensors):
            tensors.append(t)
        return k

    def apart(x: Any) -> Structure:
        return take_apart(x, leaf, functools.partial(shared.position, apart), _refuse_object)

    output = apart(traced.result)
    assigned = [sig.Assign(table, apart(key), None if v is GONE else apart(v)) for table, key, v in traced.changes]
    gradients = tuple(_gradients(traced, apart, tensors))
    if any(t.retains_grad for t in (*traced.position, *tensors)):
        refuse(Event.HOOK, "retain_grad")
    for t in (*tensors, *(i.replica for i in traced.inputs)):
        if type(t) is Replica and traced.tracer.table.storage_state(t).in_lists and not _follows(t):
            refuse(Event.HISTORY, "a view that was written in a list with its base, and keeps the history of before")
    results.make_all(tensors)
    moved = metadata_mutations(traced, results)
    results.finish()
    shared.looked = Bound().container  # ``apart`` is a cycle, and would keep what the call brought
    effects = sig.Effects(written, moved, tuple(assigned), gradients, traced.grad_mode)
    inputs, looks = tuple(i.input for i in traced.inputs), tuple(r.look for r in results.of_graph)
    signature = sig.Signature(inputs, tuple(results.made), output, effects, looks, tuple(shared.built))
    return Analysis(signature, tuple(results.of_graph), tuple(results.tensors))


def _follows(t: Tensor) -> bool:
    """Whether the history of a view comes from what its base has now."""
    base, node = _torch.base_of(t), None if is_lost(t) else t.grad_fn
    while base is not None and node is not None and node is not base.grad_fn:
        node = next((n for n, _ in node.next_functions), None)
    return base is None or (node is base.grad_fn) or not requires_grad(t)


class _Shared:
    """Containers that the function made and put in several places, which stay one."""

    def __init__(self, traced: Traced) -> None:
        self.looked = traced.bound.container
        self.count = len(traced.bound.containers)
        self.built: list[Structure] = []
        self.repeated: dict[Itself, int | None] = {}  # where each is found, once it is built
        met = Bound()

        def meet(x: Any) -> int | None:
            if (position := self.looked(x)) is not None:
                return position
            if met.enter(x, ""):
                return None
            self.repeated[Itself(x)] = None
            return 0

        for x in (traced.result, *(x for _, key, v in traced.changes for x in (key, v))):
            take_apart(x, lambda t: 0, meet, _refuse_object)

    def position(self, apart: Callable[[Any], Structure], x: Any) -> int | None:
        """Where a call finds the container ``x``; None if it is built in place."""
        if (position := self.looked(x)) is not None or (key := Itself(x)) not in self.repeated:
            return position
        if self.repeated[key] is None:
            del self.repeated[key]  # as ``apart`` comes here again
            self.built.append(apart(x))
            self.repeated[key] = self.count + len(self.built) - 1
        return self.repeated[key]


def _gradients(traced: Traced, apart: Any, tensors: list[Tensor]) -> Iterator[tuple[sig.Given | sig.Made, Structure]]:
    """Leaves whose ``.grad`` is another tensor than before; ``tensors`` are those that the call gives."""
    before = {i.input.descriptor.of: i.replica for i in traced.inputs if isinstance(i.input.descriptor, sig.GradOf)}
    for k, i in enumerate(traced.inputs if traced.tracer.needs.gradients else ()):
        now = _torch.gradient_of(i.replica)
        if now is not before.get(i.input.descriptor):
            if now is not None and now.shape != i.replica.shape:
                refuse(Event.LEAF, f"{i.input.descriptor} gets a gradient and then another shape")
            if isinstance(i.input.descriptor, sig.BaseOf):  # whose gradient is no input
                refuse(Event.CALLERS, f"{i.input.descriptor} gets a gradient")
            yield sig.Given(k), apart(now)
    for k, t in enumerate(tensors):  # which grow
        gradient = _torch.gradient_of(t) if is_leaf(t) and traced.input_of(t) is None else None
        if gradient is not None and (gradient.shape != t.shape or any(gradient is x for x in tensors)):
            refuse(Event.LEAF, "a leaf made inside is returned, with its gradient, or one of another shape")
        if gradient is not None:
            yield sig.Made(k), apart(gradient)


def _refuse_object(name: str) -> NoReturn:
    refuse(Event.STATE, f"an object of class {name} is returned or assigned")
