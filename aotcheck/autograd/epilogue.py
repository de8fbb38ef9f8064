"""Reads off the replicas what the function did and writes it down as the steps that repeat it on the caller's tensors.

Order of the steps: storage sizes, data, metadata, outputs. Each later kind presupposes the earlier ones on the real
tensors.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import Retrace, UnsupportedError
from aotcheck.autograd.record import (
    Arg,
    BumpVersion,
    Constant,
    Detach,
    FlatInput,
    GraphOutput,
    Hold,
    Local,
    PointAt,
    Record,
    Ref,
    ReplayMode,
    ReplayView,
    RequireGrad,
    RequireGradOfInteger,
    ResizeStorage,
    Restride,
    Result,
    Role,
    Root,
    SetGradMode,
    Source,
    Step,
    Visibility,
    WindowOn,
    Write,
    WriteFlat,
    renumbered,
)
from aotcheck.autograd.storage import StorageState
from aotcheck.autograd.trace import Value, geometry_of

if TYPE_CHECKING:
    from aotcheck.autograd.capture import Capture, TracedArgument, TracedRoot


class EpilogueBuilder:
    """Builds the record of one capture.

    Used once, inside the tracing mode, because reading a value may record the ops that compute it.
    """

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.table = capture.tracer.table
        self.roots = capture.roots
        self.arguments = capture.arguments
        self.outputs: list[GraphOutput] = []
        self.prepare: list[Arg] = []
        self.returned: list[Tensor] = []
        self.last: list[Step] = []  # what views of the arguments must not see
        self.holds: list[Step] = []
        self.steps: list[Step] = []
        self.names: dict[int, Ref] = {}  # id of a replica -> where the real tensor is found
        self.locals = 0
        self.tensors: dict[int, tuple[Tensor, Tensor | None]] = {}  # output tensors and their bases, not yet named
        self.anchors: dict[int, tuple[Ref, int]] = {}  # id of a fresh storage's state -> a tensor on it, its offset
        self.current: dict[
            int, Ref
        ] = {}  # id of an input storage's state -> a tensor that has it when outputs are made
        self.rebased = {
            id(r.replica) for r in self.roots if r.replica.requires_grad and r.replica.grad_fn is not r.grad_fn
        }

    def build(self, outputs: Sequence[Any]) -> Record:
        """The record of the capture, whose function returned ``outputs``."""
        for a in self.arguments:
            self.names[id(a.replica)] = Arg(a.index)
        for r in self.roots:
            self.names.setdefault(id(r.replica), r.source)
        self.returned = [o for o in outputs if isinstance(o, Tensor)]
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
                self._collect(o)
        self._anchor_fresh_storages(outputs, moved)
        self._find_current(input_states)
        self._apply_metadata(moved)
        for o in outputs:
            if isinstance(o, Tensor) and _torch.leafness(o) is None:
                self._name(o)  # first: what makes it stale must not touch the others
        returns = [self._name(o) if isinstance(o, Tensor) else self._constant(o) for o in outputs]
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

    def _local(self) -> Local:
        self.locals += 1
        return Local(self.locals - 1)

    def _output(
        self, value: Value, role: Role, geometry: Any, tensor: Tensor | None, differentiable: bool = False
    ) -> Result:
        self.outputs.append(GraphOutput(value, role, geometry, differentiable, tensor))
        return Result(len(self.outputs) - 1)

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
            if quiet and a.state.version > 0:
                raise UnsupportedError("view made under no_grad", "of a base that requires grad, as an argument, written")
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
            result = self._output(value, Role.MUTATED_INPUT, state.flat.geometry, None)
            self.steps.append(WriteFlat(state.source, state.flat.geometry.dtype, result))
            for a in arguments:
                if _torch.version_of(a.replica) != a.version:
                    self.steps.append(BumpVersion(Arg(a.index)))
        for r in roots:
            if r in rebased:
                self._write_under_grad(r)
            elif state.flat is None:
                value = self.table.read_view(state.views[r.geometry])
                result = self._output(value, Role.MUTATED_INPUT, r.geometry, None)
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
        inexact = _differentiable_dtype(t)
        result = self._output(self.table.read(t), Role.MUTATED_INPUT, geometry, t, differentiable=inexact)
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
                changes.append((a, "geometry"))
            if a.requires_grad and not t.requires_grad:
                changes.append((a, "detach"))
        return changes

    def _apply_metadata(self, changes: Sequence[tuple[TracedArgument, str]]) -> None:
        holders: dict[int, tuple[Local, int | None]] = {}
        for a, kind in changes:
            if kind == "storage":
                state = self.table.state(a.replica)
                holder = self._local()
                if state.is_input:
                    self.steps.append(Hold(holder, self.current[id(state)]))
                    holders[a.index] = (holder, None)
                else:
                    ref, anchored_at = self.anchors[id(state)]
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
                if a.state.version > 0 or any(base is t for _, base in self.tensors.values()):
                    raise UnsupportedError("detached argument", "it was written as well, or a view of it is returned")
                self.last.append(Detach(Arg(a.index), leaf=t.is_leaf and bool(a.real_is_leaf)))

    def _seen_by_autograd(self, t: Tensor) -> bool:
        """Whether ``t``, or the root it is a view of, has another history than before."""
        return id(t) in self.rebased or id(_torch.base_of(t)) in self.rebased

    def _restrided_under_grad(self, a: TracedArgument) -> bool:
        """Whether the change of geometry itself has to leave a history; a write to the root under grad has left it."""
        return self._seen_by_autograd(a.replica) and a.state.version == 0

    # -- outputs

    def _collect(self, t: Tensor | None) -> None:
        while t is not None and id(t) not in self.names and id(t) not in self.tensors:
            base = _torch.base_of(t)
            if base is not None and self.table.state(base) is not self.table.state(t):
                base = None
            unsafe = self.capture.tracer.unsafe_views.get(id(t))
            if base is None and unsafe is not None and unsafe.intact:
                # The op may have run on a copy (of a conjugated tensor, say), of which autograd knows nothing.
                source = unsafe.source
                if not t.requires_grad or (source.requires_grad and self._reaches_base(t, source)):
                    base = source
            self.tensors[id(t)] = (t, base)
            t = base

    def _anchor_fresh_storages(self, outputs: Sequence[Any], changes: Sequence[tuple[TracedArgument, str]]) -> None:
        """One graph output per storage made inside.

        Every other tensor on it is made again from that one, so they share memory.
        """
        returned = {id(o): o for o in outputs if isinstance(o, Tensor)}
        needed: dict[int, tuple[StorageState, list[Tensor]]] = {}
        for t, _ in self.tensors.values():
            state = self.table.state(t)
            if not state.is_input:
                needed.setdefault(id(state), (state, []))[1].append(t)
        pointed = {id(self.table.state(a.replica)) for a, kind in changes if kind == "storage"}
        for a, kind in changes:
            state = self.table.state(a.replica)
            if kind == "storage" and not state.is_input:
                needed.setdefault(id(state), (state, []))
        for key, (state, tensors) in needed.items():
            survivors = [t for t in tensors if id(t) in returned]
            if len(survivors) == 1 and key not in pointed and self._plain(survivors[0]):
                only = survivors[0]
                for t in tensors:
                    del self.tensors[id(t)]
                self.tensors[id(only)] = (only, None)
                tensors = [only]
            self._anchor(state, tensors, returned)

    def _plain(self, t: Tensor) -> bool:
        """Whether a lone alias of a storage made inside can be an output by itself: eager accepts writes to it."""
        if _torch.base_of(t) is None:
            return True
        if t.is_conj() or t.is_neg():  # lazy bits are those of a view, never of a computed result
            return False
        return not t.requires_grad or _torch.creation_meta(t) == _torch.CreationMeta.DEFAULT

    def _anchor(self, state: StorageState, tensors: Sequence[Tensor], returned: dict[int, Tensor]) -> None:
        tops = [t for t in tensors if self.tensors[id(t)][1] is None]
        differentiable = [t for t in tops if t.requires_grad and not self._is_new_leaf(t)]
        if len(differentiable) > 1:
            raise UnsupportedError(
                "differentiable aliases without a base",
                "two returned tensors share memory and neither is a view of the other",
            )
        chosen: Tensor | None = None
        if differentiable:
            chosen = differentiable[0]
        else:
            matching = [t for t in tops if state.roots[0].geometry == geometry_of(t)]
            chosen = matching[0] if matching else (tops[0] if len(tops) == 1 else None)
        if chosen is not None:
            geometry = geometry_of(chosen)
            role = Role.USER_OUTPUT if id(chosen) in returned else Role.INTERMEDIATE_BASE
            inexact = _differentiable_dtype(chosen)
            leaf = not differentiable and chosen.requires_grad
            has_history = chosen.requires_grad and not leaf
            ref = self._output(self.table.read(chosen), role, geometry, chosen, has_history and inexact)
            if leaf:
                self.steps.append(RequireGrad(ref))
            elif has_history and not inexact:
                self.steps.append(RequireGradOfInteger(ref))
            self.names[id(chosen)] = ref
            self.anchors[id(state)] = (ref, geometry.offset)
            if len(tensors) == 1 and id(state) not in self._pointed_at():
                return
            if all(self._reaches(t, chosen) for t in tensors):
                return
            if differentiable:
                raise UnsupportedError(
                    "alias beyond its base", "a returned alias reaches memory that its differentiable base does not"
                )
            self.outputs.pop()
            del self.names[id(chosen)]
        root = self.table.flat(state)
        ref = self._output(self.table.read_view(root), Role.INTERMEDIATE_BASE, root.geometry, None)
        self.anchors[id(state)] = (ref, 0)

    def _is_new_leaf(self, t: Tensor) -> bool:
        """Whether ``t``, made inside, is a leaf that requires grad; refused where another result depends on it so."""
        if not _torch.leafness(t):
            return False
        others = [o for o in self.returned if o is not t and _torch.base_of(o) is not t]
        others += [r.replica for r in self.roots if id(r.replica) in self.rebased]
        seen: set[Any] = set()
        todo = [o.grad_fn for o in others if o.requires_grad and _torch.leafness(o) is False]
        while todo:
            node = todo.pop()
            if node is not None and node not in seen:
                seen.add(node)
                if getattr(node, "variable", None) is t:
                    raise UnsupportedError("leaf made inside", "another result has a gradient with respect to it")
                todo.extend(n for n, _ in node.next_functions)
        return True

    def _pointed_at(self) -> set[int]:
        return {id(self.table.state(a.replica)) for a in self.arguments if self.table.state(a.replica) is not a.state}

    def _reaches(self, t: Tensor, anchor: Tensor) -> bool:
        """Whether the memory of ``t`` lies within what a fresh tensor like ``anchor`` allocates."""
        if t is anchor or _torch.base_of(t) is anchor:
            return True
        g, a = geometry_of(t), geometry_of(anchor)
        return g.offset >= a.offset and g.elements_reached * g.dtype.itemsize <= a.elements_reached * a.dtype.itemsize

    def _find_current(self, states: Sequence[StorageState]) -> None:
        for state in states:
            holders: list[tuple[Tensor, StorageState, Source]]
            holders = [(a.replica, a.state, Arg(a.index)) for a in self.arguments]
            holders += [(r.replica, r.state, r.source) for r in self.roots]
            for t, entry_state, ref in holders:
                if entry_state is state and self.table.state(t) is state:
                    self.current[id(state)] = ref
                    break
            else:
                local = self._local()
                self.holds.append(Hold(local, state.source))
                self.current[id(state)] = local

    def _name(self, t: Tensor) -> Ref:
        named = self.names.get(id(t))
        if named is not None:
            return named
        _, base = self.tensors[id(t)]
        local = self._local()
        if base is not None:
            self.steps += self._replay(local, t, base)
        else:
            state = self.table.state(t)
            leaf = t.requires_grad and self._is_new_leaf(t)
            if t.requires_grad and not leaf:
                raise UnsupportedError(
                    "differentiable alias without a base",
                    "a returned tensor shares memory with an input and is no view of it",
                )
            if state.is_input:
                self.steps.append(
                    WindowOn(local, self.current[id(state)], geometry_of(t), None, self._own_version(t, state))
                )
            else:
                ref, offset = self.anchors[id(state)]
                self.steps.append(WindowOn(local, ref, geometry_of(t), offset, self._own_version(t, state)))
            if leaf:
                self.steps.append(RequireGrad(local))
        self.names[id(t)] = local
        return local

    def _own_version(self, t: Tensor, state: StorageState) -> bool:
        """Whether ``t`` counts its versions apart from the tensor that the epilogue makes it from."""
        ref = self.current.get(id(state)) or self.anchors[id(state)][0]
        known: list[TracedArgument | TracedRoot] = [*self.arguments, *self.roots]
        holder = next((k.replica for k in known if self.names.get(id(k.replica)) == ref), None)
        if isinstance(ref, Result):
            holder = self.outputs[ref.index].tensor
        return holder is not None and _torch.version_groups([holder, t])[1] != 0

    def _replay(self, local: Local, t: Tensor, base: Tensor) -> list[Step]:
        source = self._name(base)
        self.capture.tracer.keep.append(t)
        if _torch.base_of(t) is None:
            unsafe = self.capture.tracer.unsafe_views[id(t)]
            mode = ReplayMode.GRAD if t.requires_grad else ReplayMode.NO_GRAD
            return [ReplayView(local, source, unsafe.replay, mode, None)]
        how = _torch.creation_meta(t)
        default, under_no_grad = _torch.CreationMeta.DEFAULT, _torch.CreationMeta.NO_GRAD_MODE
        if how == _torch.CreationMeta.IN_CUSTOM_FUNCTION and t.requires_grad:
            raise UnsupportedError("view made by a custom Function", "returned from the function")
        if t.requires_grad and not base.requires_grad and id(base) not in self.capture.maker.kernels.detached:
            raise UnsupportedError("leaf made inside", "a view that requires grad of a tensor that does not")
        stale = False
        try:
            has_history = t.grad_fn is not None
        except RuntimeError:  # eager refuses to say: the base was written since
            if how == default:
                raise UnsupportedError("view of a detached argument", "it was made before detach_") from None
            stale = has_history = True
        if t.requires_grad and not has_history and how != under_no_grad:
            raise UnsupportedError("leaf made inside", "a view that is a leaf requiring grad")
        if has_history and not stale and not self._reaches_base(t, base):
            mode = ReplayMode.NO_GRAD_THEN_GRAD
        elif how == under_no_grad:
            mode = ReplayMode.NO_GRAD_THEN_GRAD if has_history and not stale else ReplayMode.NO_GRAD
        elif not t.requires_grad:
            detached = id(base) in self.capture.maker.kernels.detached
            mode = ReplayMode.NO_GRAD if base.requires_grad or detached else ReplayMode.AMBIENT
        else:
            mode = ReplayMode.AMBIENT if self.capture.entry_grad else ReplayMode.GRAD
        replay = ReplayView(
            local, source, self._view_func(t, base), mode, None if how in (default, under_no_grad) else how
        )
        if stale:
            return [replay, BumpVersion(local)]
        if id(t) in self.capture.maker.kernels.required and _torch.leafness(t):
            return [replay, RequireGrad(local)]
        return [replay]

    def _reaches_base(self, t: Tensor, base: Tensor) -> bool:
        """Whether gradients of ``t`` arrive at ``base``: not if a view made under no_grad lies between."""
        if not base.requires_grad:
            return True
        seen: set[Any] = set()
        todo = [t.grad_fn]
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            if node is base.grad_fn or getattr(node, "variable", None) is base:
                return True
            seen.add(node)
            todo.extend(n for n, _ in node.next_functions)
        return False

    def _view_func(self, t: Tensor, base: Tensor) -> Callable[[Tensor], Tensor]:
        """How to make ``t`` again from its base; by geometry where a change of metadata came between."""
        view_func = _torch.view_func_of(t)
        tracer = self.capture.tracer
        if id(self.table.state(t)) not in tracer.reshaped:
            return view_func
        g = geometry_of(t)
        # Torch replays the index of a multi-output view without a check, on whatever shape the base has by now: that is not even tried.
        plain = _torch.creation_meta(t) == _torch.CreationMeta.DEFAULT
        if plain and id(base) not in tracer.regeometried and id(t) not in tracer.regeometried:
            with contextlib.suppress(RuntimeError, IndexError), torch.no_grad():
                if geometry_of(view_func(base)) == g:
                    return view_func
        if geometry_of(base)[3:] != g[3:]:
            raise UnsupportedError("view of a tensor whose metadata changed", "with another dtype or conjugated")
        if t.requires_grad and geometry_of(base).may_self_overlap:
            raise UnsupportedError("view of a tensor whose metadata changed", "of an expanded tensor, with a gradient")
        return _window_of(g.shape, g.stride, g.offset)

    # -- the end

    def _record(self, returns: list[Ref | Constant], states: Sequence[StorageState]) -> Record:
        order = sorted(range(len(self.outputs)), key=lambda k: self.outputs[k].role.value)
        place = {old: new for new, old in enumerate(order)}
        steps = tuple(renumbered(s, place) for s in (*self.holds, *self.steps))
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
            outputs=tuple(self.outputs[k] for k in order),
            steps=steps,
            returns=tuple(Result(place[r.index]) if isinstance(r, Result) else r for r in returns),
            written_placeholders=frozenset(placeholders),
            entry_grad=self.capture.entry_grad,
            prepare=tuple(self.prepare),
            differentiable=any(o.differentiable for o in self.outputs),
            generators=tuple(i for i, _ in self.capture.generators),
        )


def _differentiable_dtype(t: Tensor) -> bool:
    return t.dtype.is_floating_point or t.dtype.is_complex


def _window_of(shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Any:
    def window(base: Tensor) -> Tensor:
        return base.as_strided(shape, stride, offset)

    return window
