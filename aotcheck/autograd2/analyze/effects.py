"""What the call did to its inputs: data, geometry, storage, and what autograd knows of them."""

from __future__ import annotations

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.analyze.results import Results, is_lost, requires_grad
from aotcheck.autograd2.ir.meta import geometry_of, is_leaf
from aotcheck.autograd2.ir.signature import Alias, Fresh, Given, How, MetadataMutation, Mutation, Written
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.inputs import TracedInput
from aotcheck.autograd2.trace.replica import Needs, state_of
from aotcheck.autograd2.trace.run import Traced
from aotcheck.autograd2.trace.view import StorageState


def more_needs(traced: Traced) -> Needs:
    """What the next trace must take into account beside what this one did, or the same."""
    bases = False
    for state, positions in _storages(traced).items():
        members = [traced.inputs[k] for k in positions]
        alone = len(members) == 1 and not state_of(members[0].replica).was_a_view
        recorded = not alone and (state.version or state.touched) and any(map(has_new_history, members))
        told = len(members) > 1 and any(state_of(i.replica).set is not None for i in members)
        views = state.version and any(state_of(i.replica).was_a_view for i in members)
        bases |= bool(recorded or told or views)
    leaves = [i.replica for i in traced.inputs if i.input.meta.is_leaf and is_leaf(i.replica)]
    return traced.tracer.needs.also(bases=bases, gradients=any(_torch.gradient_of(t) is not None for t in leaves))


def _storages(traced: Traced) -> dict[StorageState, list[int]]:
    """The storages that inputs lay on at entry, with the positions of these inputs."""
    found: dict[StorageState, list[int]] = {}
    for k, i in enumerate(traced.inputs):
        found.setdefault(i.state, []).append(k)
    return found


def has_new_history(i: TracedInput) -> bool:
    """Whether an input has another grad_fn than it had at entry."""
    if i.node is None and is_lost(i.replica):
        return False
    return requires_grad(i.replica) and i.replica.grad_fn is not i.grad_fn and i.replica.grad_fn is not None


def late_moves(traced: Traced, moved: tuple[MetadataMutation, ...], made: list[How]) -> frozenset[int]:
    """Leaves that get another shape, and of which autograd expects gradients in the former; refused if in a third."""
    found, viewed = set(), {how.base for how in made if isinstance(how, Alias) and how.steps}
    for k, i in enumerate(traced.inputs):
        shape = tuple(i.replica.shape)
        if not (state_of(i.replica).moved and i.replica.requires_grad and is_leaf(i.replica)):
            continue
        expected = _torch.recorded_gradient(_torch.accumulator_of(i.replica), 0)[0]
        if expected != shape:
            found.add(k)
            if expected != i.geometry.shape or Given(k) in viewed:
                refuse(Event.HISTORY, f"{i.input.descriptor} is used in several shapes")
        elif shape != i.geometry.shape and any(m.base is not None for m in moved if m.input == k):
            refuse(Event.STORAGE, f"{i.input.descriptor} gets another shape and then a gradient")
    return frozenset(found)


def data_mutations(traced: Traced, results: Results) -> tuple[Written, ...]:
    """Inputs whose data changed."""
    table = traced.tracer.table
    found: list[Written] = []
    for state, members in _storages(traced).items():
        if table.is_resized(state):
            table.flat(state)
        roots = [k for k in members if traced.inputs[k].node is not None]
        recorded = [k for k in roots if has_new_history(traced.inputs[k])]
        seen = tuple(k for k in roots if _torch.version_of(traced.inputs[k].replica) != traced.inputs[k].version)
        if not state.version and not (state.touched and (recorded or seen)):
            if recorded:
                refuse(Event.HISTORY, f"{traced.inputs[recorded[0]].input.descriptor} is reshaped in place")
            continue
        if len(recorded) > 1:
            refuse(Event.HISTORY, "two arguments that share memory are written, and neither is a view of the other")
        if recorded:
            (k,) = recorded
            i = traced.inputs[k]
            if table.storage_state(i.replica) is not state or geometry_of(i.replica) != table.spelled(i.geometry):
                refuse(Event.STORAGE, f"{i.input.descriptor} is written and gets another shape or storage")
            if (i.input.meta.requires_grad and i.input.meta.is_leaf) or state_of(i.replica).told:
                refuse(Event.LEAF, f"{i.input.descriptor} is written once it does not require grad, or requires it")
            if i.geometry.may_overlap_itself:
                refuse(Event.OVERLAP, f"{i.input.descriptor}, whose elements share memory, is written")
            if i.geometry.is_beyond(state.nbytes):
                refuse(Event.FREED, f"{i.input.descriptor} is written, and has a grad_fn or gets one")
            node = table.read(i.replica)
            index = results.add(node, i.geometry, i.replica)
            found.append(Written(k, index, Mutation.DIFFERENTIABLE, beside=tuple(members)))
            if len(roots) > 1 or state.flat is not None:
                view = table.flat(state)
                index = results.add(table.read_view(view), view.geometry)
                others = tuple(j for j in seen if j != k)
                found.append(Written(k, index, Mutation.UNDER_NO_GRAD, True, others, tuple(members)))
            continue
        first = roots[0]
        whole = state.flat is not None or len(roots) > 1 or traced.inputs[first].geometry.may_overlap_itself
        view = table.flat(state) if whole else state.roots[0]
        index = results.add(table.read_view(view), view.geometry)
        kind = Mutation.UNDER_NO_GRAD if seen else Mutation.HIDDEN
        found.append(Written(first, index, kind, flat=whole, versions=seen if whole else (), beside=tuple(members)))
    return tuple(found)


def metadata_mutations(traced: Traced, results: Results) -> tuple[MetadataMutation, ...]:
    """Inputs of which something else changed than data."""
    found: list[MetadataMutation] = []
    for state in _storages(traced):
        if state.resized and state.source is not None:
            found.append(MetadataMutation(state.source, nbytes=state.nbytes))
    for k, i in enumerate(traced.inputs):
        t, meta = i.replica, i.input.meta
        now, geometry = traced.tracer.table.storage_state(t), geometry_of(t)
        lost = i.node is None and is_lost(i.replica)  # as its version was counted up
        other_storage, other_geometry = now is not i.state, geometry != traced.tracer.table.spelled(i.geometry)
        needs = meta.requires_grad if lost else requires_grad(t)
        other_geometry |= (lost and not i.state.version) or (state_of(t).moved and not needs)
        if i.node is None and has_new_history(i):
            of = traced.input_of(_torch.base_of(t))
            if state_of(t).set or of is None or not has_new_history(traced.inputs[of]):
                refuse(Event.HISTORY, f"{i.input.descriptor} is a view whose history is not that of its base")
        if (other_storage or other_geometry) and not lost and (needs and not t.is_leaf):
            refuse(Event.STORAGE, f"{i.input.descriptor}")
        resized = now.resized or traced.tracer.table.is_resized(now)
        sizes = now.nbytes, _torch.storage_of(i.real).nbytes()
        if resized and (other_storage or all(map(geometry.is_beyond, sizes))):
            refuse(Event.STORAGE, f"{i.input.descriptor} moves to memory of another size than it has in the end")
        if other_storage or other_geometry:
            if other_storage and now.version and now.source is None:
                traced.tracer.table.flat(now)
            base = results.anchor(now) if other_storage else None
            if geometry.dtype != i.geometry.dtype or (geometry.conj, geometry.neg) != (i.geometry.conj, i.geometry.neg):
                refuse(Event.STORAGE, f"{i.input.descriptor} gets another dtype")
            shift = results.of_graph[base.index].geometry.offset if isinstance(base, Fresh) else None
            beyond = geometry.is_beyond(now.nbytes)
            if beyond and (other_storage or geometry.is_beyond(_torch.storage_of(i.real).nbytes())):
                refuse(Event.FREED, f"{i.input.descriptor} moves there")
            at = 0 if beyond else len(found)  # before its storage shrinks
            found.insert(at, MetadataMutation(k, geometry, base, by_data=state_of(t).data_assigned, shift=shift))
        elif i.node and not (i.state.version or state_of(t).was_a_view) and _torch.version_of(t) != i.version:
            found.append(MetadataMutation(k, geometry))  # where it lies: counts a version, as for an alias that moved
        by_base = i.node is None and not state_of(t).told  # views require grad as their base does
        if needs != meta.requires_grad and not (needs and (by_base or t.grad_fn is not None)):
            detached = not needs and not meta.is_leaf
            if not needs and any(j.state is i.state and j is not i for j in traced.inputs):
                refuse(Event.HISTORY, f"{i.input.descriptor} is detached, and shares memory with another argument")
            found.append(MetadataMutation(k, requires_grad=needs, detached=detached))
        elif meta.requires_grad and needs and not meta.is_leaf and (state_of(t).detached or is_leaf(t)):
            refuse(Event.HISTORY, f"{i.input.descriptor} is detached and requires grad again")
    gone = {Given(m.input) for m in found if m.base is not None}
    if any(m.base in gone for m in found):
        refuse(Event.STORAGE, "an argument moves to the storage of one that moved")
    return tuple(found)
