"""How the tensors that a call returns come to be: which of them the graph gives, and how the others are made again.

A returned tensor is an argument, an output of the graph, a view replayed on its base, or a window on a storage that
another tensor holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.record import (
    Arg,
    BumpVersion,
    GraphOutput,
    Hold,
    Local,
    Ref,
    ReplayMode,
    ReplayView,
    RequireGrad,
    RequireGradOfInteger,
    Result,
    Role,
    Source,
    Step,
    WindowOn,
)
from aotcheck.autograd.storage import StorageState
from aotcheck.autograd.trace import Value, geometry_of

if TYPE_CHECKING:
    from aotcheck.autograd.capture import Capture, TracedArgument, TracedRoot


class Results:
    """The graph outputs of one call, and the names under which the epilogue finds or makes each tensor."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.table = capture.tracer.table
        self.roots = capture.roots
        self.arguments = capture.arguments
        self.outputs: list[GraphOutput] = []
        self.returned: list[Tensor] = []
        self.holds: list[Step] = []
        self.steps: list[Step] = []  # of the whole epilogue, in order
        self.names: dict[int, Ref] = {}  # id of a replica -> where the real tensor is found
        self.locals = 0
        self.tensors: dict[int, tuple[Tensor, Tensor | None]] = {}  # output tensors and their bases, not yet named
        self.anchors: dict[int, tuple[Ref, int]] = {}  # id of a fresh storage's state -> a tensor on it, its offset
        # id of an input storage's state -> a tensor that has it when outputs are made
        self.current: dict[int, Ref] = {}
        self.rebased = {
            id(r.replica) for r in self.roots if r.replica.requires_grad and r.replica.grad_fn is not r.grad_fn
        }

    def local(self) -> Local:
        """A new name, for a tensor that a step will make."""
        self.locals += 1
        return Local(self.locals - 1)

    def output(
        self, value: Value, role: Role, geometry: Any, tensor: Tensor | None, differentiable: bool = False
    ) -> Result:
        """Let the graph return ``value``; ``tensor`` is the replica that it stands for, if one."""
        self.outputs.append(GraphOutput(value, role, geometry, differentiable, tensor))
        return Result(len(self.outputs) - 1)

    # -- what is returned

    def collect(self, t: Tensor | None) -> None:
        """Note that ``t`` is needed, and with it the bases from which it is made again."""
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

    # -- storages made inside

    def anchor_fresh_storages(self, outputs: Sequence[Any], changes: Sequence[tuple[TracedArgument, str]]) -> None:
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
        if t.is_conj() or t.is_neg() or geometry_of(t).may_self_overlap:  # of a view, never of a computed result
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
            inexact = differentiable_dtype(chosen)
            leaf = not differentiable and chosen.requires_grad
            has_history = chosen.requires_grad and not leaf
            ref = self.output(self.table.read(chosen), role, geometry, chosen, has_history and inexact)
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
        ref = self.output(self.table.read_view(root), Role.INTERMEDIATE_BASE, root.geometry, None)
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

    # -- names

    def find_current(self, states: Sequence[StorageState]) -> None:
        """Find a tensor that has each input storage still, now that arguments may have left theirs."""
        for state in states:
            holders: list[tuple[Tensor, StorageState, Source]]
            holders = [(a.replica, a.state, Arg(a.index)) for a in self.arguments]
            holders += [(r.replica, r.state, r.source) for r in self.roots]
            for t, entry_state, ref in holders:
                if entry_state is state and self.table.state(t) is state:
                    self.current[id(state)] = ref
                    break
            else:
                local = self.local()
                self.holds.append(Hold(local, state.source))
                self.current[id(state)] = local

    def name(self, t: Tensor) -> Ref:
        """Where the epilogue has the real tensor for ``t``; the first time this adds the steps that make it."""
        named = self.names.get(id(t))
        if named is not None:
            return named
        _, base = self.tensors[id(t)]
        local = self.local()
        if base is not None:
            steps = self._replay(local, t, base)  # adds those of what it is made from
            self.steps += steps
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

    # -- views

    def _replay(self, local: Local, t: Tensor, base: Tensor) -> list[Step]:
        """The steps that make the view ``t`` of ``base`` again.

        A view whose memory was not written since has the history that its op gave it: the op runs again, on what it
        ran on. Any other has, as eager says it, the history of a window on its base as that is now.
        """
        self.capture.tracer.keep.append(t)
        if _torch.base_of(t) is None:
            unsafe = self.capture.tracer.unsafe_views[id(t)]
            mode = ReplayMode.GRAD if t.requires_grad else ReplayMode.NO_GRAD
            return [ReplayView(local, self.name(base), unsafe.replay, mode, None)]
        how = _torch.creation_meta(t)
        default, under_no_grad = _torch.CreationMeta.DEFAULT, _torch.CreationMeta.NO_GRAD_MODE
        if how == _torch.CreationMeta.IN_CUSTOM_FUNCTION and t.requires_grad:
            raise UnsupportedError("view made by a custom Function", "returned from the function")
        made = self.capture.tracer.views.get(id(t))
        if made is not None and made.current and made.source_stays and id(t) not in self.capture.tracer.regeometried:
            source = base if made.source is base else made.source
            ref = self._intermediate(source, base)
            mode = ReplayMode.GRAD if made.grad else ReplayMode.NO_GRAD
            if made.grad == self.capture.entry_grad or not (base.requires_grad or source.requires_grad):
                mode = ReplayMode.AMBIENT
            steps: list[Step] = [ReplayView(local, ref, made.replay, mode, None)]
        else:
            ref = self.name(base)
            mode = ReplayMode.NO_GRAD if how == under_no_grad else ReplayMode.GRAD
            if not base.requires_grad and not t.requires_grad:
                mode = ReplayMode.AMBIENT
            view_func = _torch.view_func_of(t)
            steps = [ReplayView(local, ref, view_func, mode, None if how in (default, under_no_grad) else how)]
            if _torch.leafness(t) is None:  # eager refuses to say what the history is
                steps.append(BumpVersion(local))
        if id(t) in self.capture.maker.kernels.required and _torch.leafness(t):
            steps.append(RequireGrad(local))
        return steps

    def _intermediate(self, source: Tensor, base: Tensor) -> Ref:
        """The name of what a view was made of: its base, a tensor that is returned too, or a view made for this."""
        if id(source) not in self.names and id(source) not in self.tensors:
            self.tensors[id(source)] = (source, base)
        return self.name(source)

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


def differentiable_dtype(t: Tensor) -> bool:
    """Whether an output of a Function may require grad if it has the dtype of ``t``."""
    return t.dtype.is_floating_point or t.dtype.is_complex
