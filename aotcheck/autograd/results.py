"""How the tensors that a call returns come to be: which of them the graph gives, and how the others are made again.

A returned tensor is an argument, an output of the graph, a view made again on its base, or a window on a storage that
another tensor holds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.partition.components import reached_leaves
from aotcheck.autograd.partition.regions import Cut, Group, divide, find_cuts
from aotcheck.autograd.partition.shared import shared_heads
from aotcheck.autograd.record import (
    Arg,
    Attach,
    Attached,
    GiveHistory,
    GraphOutput,
    Hold,
    Leaf,
    Local,
    MakeInference,
    NoteVersion,
    PickView,
    PointAt,
    Ref,
    RenewHistory,
    ReplayMode,
    ReplayView,
    RequireGrad,
    RequireGradOfInteger,
    Reshape,
    ResizeStorage,
    Restride,
    Result,
    Role,
    SetCreationMeta,
    Source,
    StandIn,
    Step,
    Way,
    WindowOn,
    Wrap,
)
from aotcheck.autograd.replicas import past
from aotcheck.autograd.sparse import SparseReplica
from aotcheck.autograd.sparse_geometry import is_sparse
from aotcheck.autograd.storage_state import StorageState
from aotcheck.autograd.subclasses import held_by, is_jagged, is_wrapper, wrapping_of
from aotcheck.autograd.timeline import Timeline
from aotcheck.autograd.trace import Geometry, Value, geometry_of, recorded_geometry
from aotcheck.autograd.views import (
    Views,
    as_if_required,
    differentiable_dtype,
    has_earlier_history,
    has_history,
    is_new_leaf,
    is_odd,
    leads_to,
)
from aotcheck.autograd.windows import Derivation

if TYPE_CHECKING:
    from aotcheck.autograd.capture import Capture, TracedArgument, TracedRoot

aten = torch.ops.aten
_DEFAULT, _UNDER_NO_GRAD = _torch.CreationMeta.DEFAULT, _torch.CreationMeta.NO_GRAD_MODE


class Results(Views):
    """The graph outputs of one call, and the names under which the epilogue finds or makes each tensor."""

    def __init__(self, capture: Capture) -> None:
        super().__init__(capture)
        self.outputs: list[GraphOutput] = []
        self.attached: list[Attached] = []
        self.leaves: list[Leaf] = []
        self.before: list[Step] = []  # before results are attached to autograd
        self.steps: list[Step] = []  # after
        self.shrink: list[Step] = []  # at the very end
        self._stage = self.steps
        self.locals = 0
        self.makers: dict[int, Callable[[], Ref]] = {}  # id of a wrapper -> how it gets its name
        self.tensors: dict[int, tuple[Tensor, Tensor | None]] = {}  # tensors to be named, and their bases
        self.anchors: dict[int, tuple[Ref, int]] = {}  # id of a fresh storage's state -> a tensor on it, its offset
        # id of an input storage's state -> a tensor that has it when outputs are made
        self.current: dict[int, Ref] = {}
        self._preceding = Timeline()  # what happens before results are attached
        self.groups: list[Group] = []
        self.cuts: list[Cut] = []
        self.pending: dict[int, list[Step]] = {}  # id of an argument's replica -> how it takes its history
        self._owner: dict[int, int] = {}  # id of an attached replica -> its group
        self._done: set[int] = set()  # groups that are attached
        self._shown: set[int] = set()  # ids of the states of storages that the caller sees as a whole
        self._writes_follow = False  # whether what is made now is made before anything is written
        self._several: dict[Any, Local] = {}  # where the views are that one op made, by when, of what and in which mode
        self._reached: set[int] = set()  # ids of the leaves to which results lead
        self._told: set[int] = set()  # ids of what is told to require grad before results are attached
        self._versions: dict[int, Local] = {}  # id of an argument's replica -> its version when the call began
        self._histories: dict[int, Local] = {}  # id of a replica -> the stand-in that has its history
        self.rebased = {
            id(r.replica) for r in self.roots if r.replica.requires_grad and r.replica.grad_fn is not r.grad_fn
        }

    @contextlib.contextmanager
    def before_attaching(self) -> Iterator[None]:
        """What is made inside is made before results are attached to autograd."""
        self._stage = self.before
        try:
            yield
        finally:
            self._stage = self.steps

    def emit(self, step: Step) -> None:
        """One more step, in the part of the epilogue that is being written."""
        self._stage.append(step)

    def local(self) -> Local:
        """A new name, for a tensor that a step will make."""
        self.locals += 1
        return Local(self.locals - 1)

    def output(self, value: Value, role: Role, geometry: Any, tensor: Tensor | None) -> Result:
        """Let the graph return ``value``; ``tensor`` is the replica that it stands for, if one."""
        self.outputs.append(GraphOutput(value, role, geometry, tensor))
        return Result(len(self.outputs) - 1)

    def attach(self, ref: Ref, t: Tensor) -> None:
        """Let the tensor ``ref`` get the history that the replica ``t`` has."""
        recorded = None if is_wrapper(t) or is_sparse(t) else recorded_geometry(t)
        odd = recorded is not None and (recorded.shape, recorded.dtype) != (t.shape, t.dtype)
        self.attached.append(Attached(ref, t, t.device, recorded if odd else None))

    def stand_in(self, t: Tensor) -> Local:
        """A tensor without memory that gets the history of ``t``, for another to take over."""
        local = self.local()
        if is_wrapper(t) and is_jagged(t):
            self._ragged_stand_in(local, t)
        else:
            self.before.append(StandIn(local, recorded_geometry(t), t.device))
        self.attach(local, t)
        return local

    def _ragged_stand_in(self, local: Local, t: Tensor) -> None:
        """What says how ragged ``t`` is belongs to the sizes that autograd knows of it."""
        wrapping = wrapping_of(t)
        assert wrapping is not None
        refs: list[Ref] = []
        for _, x in held_by(t)[0]:
            if x.is_floating_point() or x.is_complex():
                values = self.local()
                self.before.append(StandIn(values, geometry_of(x), x.device))
                refs.append(values)
            else:
                refs.append(self.names[id(x)] if id(x) in self.names else self._refused(x))
        self.before.append(Wrap(local, wrapping, tuple(refs)))

    def _refused(self, x: Tensor) -> Ref:
        raise UnsupportedError("subclass output", "a ragged tensor of offsets made inside takes over a history")

    # -- what is returned

    def return_sparse(self, t: SparseReplica) -> None:
        """The graph returns the sparse tensor ``t``, which no epilogue could make."""
        addresses = [_torch.storage_address(s) for s in t.shares]
        states = [self.table.states[a] for a in addresses if a in self.table.states]
        if id(t) in self.names:
            return
        if is_new_leaf(t) or t.is_inference() != self.capture.entry_inference:
            raise UnsupportedError("sparse tensor", "a leaf made inside, or made in another inference mode")
        if any(s.is_input and s.version > 0 for s in states):
            raise UnsupportedError("sparse tensor", "one made of an argument that was written is returned")
        ref = self.names[id(t)] = self.output(self.table.read(t), Role.USER_OUTPUT, None, t)
        if has_history(t):
            self.attach(ref, t)

    def collect(self, t: Tensor | None) -> None:
        """Note that ``t`` is needed, and with it the bases from which it is made again."""
        while t is not None and id(t) not in self.names and id(t) not in self.tensors:
            base = _torch.base_of(t)
            base = None if is_wrapper(base) else base
            if base is not None and self.table.state(base) is not self.table.state(t):
                base = base if self._left(base, t) or self._went(t) or self._follows(t) else None
            unsafe = self.tracer.unsafe_views.get(id(t))
            if base is None and unsafe is not None and unsafe.intact and geometry_of(t) == unsafe.geometry:
                # The op may have run on a copy (of a conjugated tensor, say), of which autograd knows nothing.
                base = unsafe.source if not t.requires_grad or leads_to(t, unsafe.source) else None
            self.tensors[id(t)] = (t, base)
            t = base

    def schedule_views(self, timeline: Timeline) -> None:
        """Let the views that something befell later than they were made be made at their moment.

        See Note [In the program's order].
        """
        for t, base in list(self.tensors.values()):
            if base is None or id(t) in self.names:
                continue
            made = self.tracer.views.get(id(t))
            left = self.table.state(base) is not self.table.state(t)
            if made is None:
                if left:
                    timeline.at(0, functools.partial(self.name, t))
                continue
            if not left and self._renewed_since(t, base):
                continue
            view = t
            while made is not None and view is not base:
                if (left or self._changed(made, view) > made.time) and id(view) not in self.names:
                    self.tensors.setdefault(id(view), (view, base))
                    self._early.add(id(view))
                    # One that went elsewhere itself is cut from its base as it lay then.
                    cut = id(view) in self.tracer.regeometried and not self._went(view)
                    went = self.kernels.moved.get(id(view), 0) if cut else 0
                    timeline.at(max(made.time, went), functools.partial(self.name, view))
                self._schedule_move(timeline, view, made)
                view = made.source
                made = self.tracer.views.get(id(view))

    def _schedule_move(self, timeline: Timeline, view: Tensor, made: Derivation) -> None:
        """Let ``view``, made again where its op put it, go when it did to where it lies by the end."""
        if id(view) in self.names or id(view) in self._moving or not self._moves(view):
            return

        def move() -> None:
            wanted = id(view) in self.names or id(view) in self.tensors
            local = self.name(view) if wanted else None
            self._moving.discard(id(view))
            if local is not None:
                self._stage.append(self._move(local, view))

        if self._current(view) is not None:
            self._moving.add(id(view))
            timeline.at(self.kernels.moved[id(view)], move)

    def _moves(self, view: Tensor) -> bool:
        """Whether ``view`` goes elsewhere after it was made, to where something of the call's is."""
        state = self.table.state(view)
        return id(view) in self.kernels.moved and (state.is_input or id(state) in self.anchors)

    def _move(self, local: Ref, view: Tensor) -> PointAt:
        """What takes the real tensor for ``view`` to where ``.data =`` or ``set_`` took it, its history as it is."""
        told = self.tracer.set_calls.get(id(view))
        return self.point(local, view, Way.DATA if told is None else Way.SET if told else Way.SET_UNTOLD)

    def make_views_of_odd_views(self) -> None:
        """Make the views of arguments that custom Functions or no_grad gave, made before these were written.

        Once the write is counted autograd refuses to say what their history is. What they show is written later.
        """
        early: list[Step] = []
        stage, self._stage = self._stage, early
        self._writes_follow = True
        for t, base in list(self.tensors.values()):
            made = self.tracer.views.get(id(t))
            # Autograd compares the version that its base had with its own, which stands still.
            alone = base is not None and made is not None and made.source is base and self._counts_alone(t, base)
            chain = [t]
            while made is not None and not (alone or self._is_odd_view(made.source)):
                chain.append(made.source)
                made = self.tracer.views.get(id(made.source))
            first = None if made is None else next((v for v in chain if self._made_before_writes(v, made)), None)
            if first is not None and base is not None:
                self.tensors.setdefault(id(first), (first, base))
                self._early.add(id(first))
                self.name(first)
        self._stage, self._writes_follow = stage, False
        self.before[:0] = early

    # -- storages made inside

    def anchor_fresh_storages(
        self, outputs: Sequence[Any], held: Sequence[Tensor], changes: Sequence[tuple[TracedArgument, str]]
    ) -> None:
        """One graph output per storage made inside.

        Every other tensor on it is made again from that one, so they share memory. Of what the caller ``held`` or comes
        to hold he sees the whole storage, of what is returned only what the tensors show.
        """
        returned = {id(o): o for o in outputs if isinstance(o, Tensor)}
        needed: dict[int, tuple[StorageState, list[Tensor]]] = {}
        for t, _ in self.tensors.values():
            state = self.table.state(t)
            if not state.is_input:
                needed.setdefault(id(state), (state, []))[1].append(t)
        self._shown = {id(self.table.state(t)) for t in held if not (is_wrapper(t) or is_sparse(t))}
        self._shown |= {id(self.table.state(a.replica)) for a in self.arguments}
        for a, kind in changes:
            state = self.table.state(a.replica)
            if kind == "storage" and not state.is_input:
                needed.setdefault(id(state), (state, []))
        for key, (state, tensors) in needed.items():
            survivors = [t for t in tensors if id(t) in returned]
            partly = key in self._shown and not (survivors and _is_whole(survivors[0], state))
            alone = len(survivors) == 1 and not partly and not state.sized
            if alone and self._plain(survivors[0]):
                only = survivors[0]
                for t in tensors:
                    del self.tensors[id(t)]
                self.tensors[id(only)] = (only, None)
                tensors = [only]
            self._anchor(state, tensors, returned)

    def _plain(self, t: Tensor) -> bool:
        """Whether a lone alias of a storage made inside can be an output by itself: eager accepts writes to it."""
        base = self.tensors[id(t)][1]
        if base is not None and (id(base) in self._arguments or self.table.state(base) is not self.table.state(t)):
            return False
        if _torch.base_of(t) is None:
            return True
        if any(t is x for x in self.capture.passed.values()):  # what is made of it will hold it only if it is no view
            return False
        if t.is_conj() or t.is_neg() or geometry_of(t).may_self_overlap:  # of a view, never of a computed result
            return False
        return not t.requires_grad or _torch.creation_meta(t) == _DEFAULT

    def _anchor(self, state: StorageState, tensors: Sequence[Tensor], returned: dict[int, Tensor]) -> None:
        """Let the graph return a tensor on ``state`` from which the others are made: one of them, or the whole."""
        tops = [t for t in tensors if self.tensors[id(t)][1] is None and not (t.requires_grad and is_odd(t))]
        matching = [t for t in tops if state.roots and state.roots[0].geometry == geometry_of(t)]
        candidates = [t for t in tops if has_history(t)] or matching or (tops if len(tops) == 1 else [])
        candidates = [c for c in candidates if _bytes_reached(c) <= state.storage.nbytes()]
        shown = id(state) in self._shown
        if shown:
            candidates = [c for c in candidates if _is_whole(c, state)]
        elif state.sized:  # the caller sees how large the storage is
            candidates = [c for c in candidates if _bytes_reached(c) == state.nbytes]
        alone = len(tensors) == 1 and not shown
        chosen = next((c for c in candidates if alone or all(self._reaches(t, c) for t in tensors)), None)
        if chosen is None:
            root = self.table.flat(state)
            ref = self.output(self.table.read_view(root), Role.INTERMEDIATE_BASE, root.geometry, None)
            self.anchors[id(state)] = (ref, 0)
            there = [*tensors, *[a.replica for a in self.arguments if self.table.state(a.replica) is state]]
            self._inference(ref, any(t.is_inference() for t in there))
            room = max([_bytes_reached(t) for t in there], default=0)
            if room > state.nbytes:
                self.before.append(ResizeStorage(ref, room))
                self.shrink.append(ResizeStorage(ref, state.nbytes))
            return
        geometry = geometry_of(chosen)
        role = Role.USER_OUTPUT if id(chosen) in returned else Role.INTERMEDIATE_BASE
        ref = self.output(self.table.read(chosen), role, geometry, chosen)
        alias = not self.capture.entry_inference and chosen.is_inference() and _torch.version_of(chosen) >= 0
        self._inference(ref, chosen.is_inference(), alias)
        if has_history(chosen):
            if differentiable_dtype(chosen):
                self.attach(ref, chosen)
            else:
                self.steps.append(RequireGradOfInteger(ref))
        self.names[id(chosen)] = ref
        if is_new_leaf(chosen):
            if id(chosen) in self.kernels.required:
                self._schedule_requirement(chosen)
            else:
                self.before.append(RequireGrad(ref, chosen.is_inference()))
        self.anchors[id(state)] = (ref, geometry.offset)

    def _inference(self, ref: Result, wanted: bool, alias: bool = False) -> None:
        if wanted != self.capture.entry_inference:
            self.before.append(MakeInference(ref, wanted, alias))

    def _reaches(self, t: Tensor, anchor: Tensor) -> bool:
        """Whether the memory of ``t`` lies within what a fresh tensor like ``anchor`` allocates."""
        if t is anchor:
            return True
        g, a = geometry_of(t), geometry_of(anchor)
        return g.offset >= a.offset and g.elements_reached * g.dtype.itemsize <= a.elements_reached * a.dtype.itemsize

    # -- attaching

    def group(self, survivors: Sequence[Tensor], together: bool) -> None:
        """Divide what is attached into groups: see Note [Cuts]."""
        tensors = [a.tensor for a in self.attached]
        ends = self.capture.ends
        if together or not tensors:
            self.groups = [Group(tuple(range(len(tensors))))] if tensors else []
        else:
            self.groups, self.cuts = divide(tensors, find_cuts(tensors, survivors, ends), ends)
        for number, group in enumerate(self.groups):
            self._owner.update({id(tensors[k]): number for k in group.attached})

    def stand_for_shared(self, survivors: Sequence[Tensor]) -> list[Tensor]:
        """Tensors at which what several results share is cut off: see Note [Shared parts]."""
        tensors = [a.tensor for a in self.attached]
        if self.capture.together or any(is_wrapper(t) or is_sparse(t) for t in tensors):
            return []
        ends = self.capture.ends
        stop = ends | {c.edge.node for c in find_cuts(tensors, survivors, ends)}
        found: list[Tensor] = []
        for edge in shared_heads(tensors, stop):
            known = (t for t in tensors if _torch.grad_fn_of(t) is edge.node and t.output_nr == edge.output_nr)
            head = next(known, None)
            if head is None:
                head = past(edge, tensors[0].device, self.kernels)
                self.names[id(head)] = self.stand_in(head)
            found.append(head)
        return found

    def attach_independent(self) -> None:
        """Attach the groups that hang on no other.

        Those views of arguments that may be made at any time are made in between, so that autograd's nodes are made in
        the order of the program: it is that in which gradients are summed up.
        """
        turns: list[tuple[tuple[int, ...], Callable[[], Any]]] = [
            (group.turn, functools.partial(self._attach_group, number))
            for number, group in enumerate(self.groups)
            if not group.cuts
        ]
        for t, base in list(self.tensors.values()):
            if base is not None and self._is_undisturbed(t, base):
                turns.append(((_torch.sequence_number(_torch.grad_fn_of(t)),), functools.partial(self.name, t)))
        for _, act in sorted(turns, key=lambda x: x[0]):
            act()

    def _is_undisturbed(self, t: Tensor, base: Tensor) -> bool:
        """Whether ``t`` is a view of an argument such that nothing befell either, nor what was made in between."""
        if id(t) in self.names or not has_history(t) or self.table.state(base).version or id(t) in self._histories:
            return False
        events = (self.kernels.moved, self.kernels.detached, self.kernels.required)
        made = self._current(t)
        while made is not None and not any(id(x) in known for x in (made.tensor, made.source) for known in events):
            if made.source is base:
                return id(base) in self._arguments and _torch.leafness(t) is False
            made = self._current(made.source)
        return False

    def attach_all(self) -> None:
        """Attach what is left."""
        for number in range(len(self.groups)):
            self._attach_group(number)

    def _attach_group(self, number: int) -> None:
        if number not in self._done:
            self._done.add(number)
            for k in self.groups[number].cuts:
                self._settle_base(self.cuts[k].tensor)
                self.name(self.cuts[k].tensor)
                self.settle(self.cuts[k].tensor)
            self.steps.append(Attach(number))

    def attach_before(self, t: Tensor) -> None:
        """Attach the groups that come before that of ``t``, for backwards to come by in the program's order."""
        for number in range(self._owner.get(id(t), 0)):
            self._attach_group(number)

    def settle_in_turn(self, t: Tensor) -> None:
        """The same as ``settle``, after what comes before."""
        self.attach_before(t)
        self.settle(t)

    def settle(self, t: Tensor) -> None:
        """``t``, which has a name, gets its history now if it has not got it yet."""
        self.attach_now(t)
        self._settle_base(t)
        steps = self.pending.pop(id(t), ())
        self.steps += steps
        if steps:
            self.steps += [RenewHistory(Arg(a.index)) for a in self._rewritten_views(t)]

    def settle_before_base(self, t: Tensor) -> None:
        """The same for a view whose history is one that its base had before it got the history it has."""
        self.attach_now(t)
        self.steps += self.pending.pop(id(t), ())

    def _rewritten_views(self, base: Tensor) -> list[TracedArgument]:
        """The arguments that are views of ``base`` and have the history of a write to it, in the program's order."""
        views = [a for a in self.arguments if _torch.base_of(a.replica) is base and a.replica is not base]
        there = [a for a in views if geometry_of(a.replica) == a.geometry and self.table.state(a.replica) is a.state]
        found = [(node, a) for a in there if (node := _torch.grad_fn_of(a.replica)) not in (None, a.grad_fn)]
        return [a for _, a in sorted(found, key=lambda x: _torch.sequence_number(x[0]))]

    def _settle_base(self, t: Tensor) -> None:
        base = _torch.base_of(t)
        if base is not None and id(base) in self.pending:
            self.settle(base)

    def attach_now(self, t: Tensor) -> None:
        """Attach ``t``, if it is to be attached."""
        if id(t) in self._owner:
            self._attach_group(self._owner[id(t)])

    def cut_targets(self) -> tuple[Leaf, ...]:
        """The cuts under the names that they have."""
        return tuple(Leaf(self.names[id(c.tensor)], c.tensor) for c in self.cuts)

    # -- what has to be there before results are attached

    def make_leaves(self) -> None:
        """Make the leaves that gradients go to, and the views that were there before their base required grad.

        See Note [What precedes attaching] and Note [In the program's order].
        """
        reached = reached_leaves([a.tensor for a in self.attached])
        self._reached = set(reached)
        roots = {id(r.replica) for r in self.capture.differentiated if r.requires_grad}
        for t, base in list(self.tensors.values()):
            if id(t) in self.names:
                continue
            made = self.tracer.views.get(id(t))
            early = self._preceding_requirement(t, base) if base is not None else []
            if self._begins_as_leaf(t) and id(t) in reached:
                early.append((made.time if made is not None else 0, t))
            stays = any(is_new_leaf(v) or not self._begins_as_leaf(v) for _, v in early)  # else the base's is its own
            if stays and base is not None and id(base) in self.rebased:
                raise UnsupportedError("leaf made inside", "a view of an argument that has another history by now")
            for time, view in early:
                if view is not t:
                    self.tensors.setdefault(id(view), (view, base))
                self._preceding.at(time, functools.partial(self.name, view))
        for a in self.arguments:
            if id(a.replica) in self.kernels.required and self._begins_as_leaf(a.replica):
                self._schedule_requirement(a.replica)
        with self.before_attaching():
            self._preceding.run()
        for (accumulator, *_), t_id in zip(reached.values(), reached, strict=True):
            leaf = _torch.variable_of(accumulator.node)
            if t_id in self.names and t_id not in roots and (is_new_leaf(leaf) or t_id in self._told):
                self.leaves.append(Leaf(self.names[t_id], leaf))

    def _begins_as_leaf(self, t: Tensor) -> bool:
        """Whether ``t`` is a leaf that requires grad, or was one from which results were computed, and told to be."""
        return is_new_leaf(t) or (id(t) in self._reached and id(t) in self.kernels.required)

    def required_for_a_while(self, a: TracedArgument) -> bool:
        """Whether the argument ``a`` requires grad when results are attached and is to stop doing so then."""
        required = self.kernels.required.get(id(a.replica), math.inf)
        stops = self.kernels.detached.get(id(a.replica), -1) > required
        return stops and not a.requires_grad and self._begins_as_leaf(a.replica)

    def _schedule_requirement(self, t: Tensor) -> None:
        """``t`` starts to require grad when the program says so: views made of it before do not."""
        self._told.add(id(t))
        step = RequireGrad(self.names[id(t)], t.is_inference())
        self._preceding.at(self.kernels.required[id(t)], functools.partial(self.before.append, step))

    def _preceding_requirement(self, t: Tensor, base: Tensor) -> list[tuple[int, Tensor]]:
        """The views, from ``t`` to its base, of what was told to require grad only later; and when each was made."""
        found: dict[int, tuple[int, Tensor]] = {}
        chain: list[tuple[int, Tensor]] = []
        while t is not base:
            made = self.tracer.views.get(id(t))
            if made is None or not made.current:
                break
            chain.append((made.time, t))
            required = self.kernels.required.get(id(made.source), -1)
            if is_new_leaf(made.source):  # and so do views of what was made of it
                found.update({time: (time, view) for time, view in chain if time < required})
            t = made.source
        return list(found.values())

    def sources(self) -> list[tuple[Tensor, Tensor]]:
        """The views, with their bases, of which the views that are needed are made again, from the base on."""
        found = []
        for t, base in self.tensors.values():
            made = None if base is None or id(t) in self.names else self._current(t)
            while made is not None and base is not None and made.source is not base:
                found.append((made.source, base))
                made = self._current(made.source)
        return found[::-1]

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
                self.before.insert(0, Hold(local, state.source))
                self.current[id(state)] = local

    def holder(self, state: StorageState) -> tuple[Ref, int | None]:
        """A tensor that has the storage by now, and its offset in the trace; None where offsets are the caller's."""
        return (self.current[id(state)], None) if state.is_input else self.anchors[id(state)]

    def point(
        self, target: Ref, t: Tensor, way: Way, lies: Geometry | None = None, holder: Ref | None = None
    ) -> PointAt:
        """Take ``target`` to where ``t`` lies, or at first to another geometry there.

        ``holder`` has held that storage since, if what has it by now may not when the step is carried out.
        """
        ref, anchor = self.holder(self.table.state(t))
        at = geometry_of(t) if lies is None else lies
        if anchor is not None:
            at = at._replace(offset=at.offset - anchor)
        return PointAt(target, holder or ref, at, anchor is not None, way, t.is_inference())

    def name(self, t: Tensor) -> Ref:
        """Where the epilogue has the real tensor for ``t``; the first time this adds the steps that make it."""
        named = self.names.get(id(t))
        if named is not None:
            if self._stage is self.steps:
                self.attach_now(t)
            return named
        if id(t) in self.makers:
            made = self.makers[id(t)]()
            if self._stage is self.steps:
                self.attach_now(t)
            return made
        _, base = self.tensors[id(t)]
        local = self.names[id(t)] = self.local()
        if base is None:
            self._stage += self._window(local, t)
        else:
            steps = self._view(local, t, base)  # adds those of what it is made from
            self._stage += steps
        required = base is None or id(t) in self.kernels.required or not base.requires_grad
        if self._begins_as_leaf(t) and required and (id(t) in self.kernels.required or not is_odd(t)):
            if self._stage is self.before and id(t) in self.kernels.required:
                self._schedule_requirement(t)
            else:
                self._stage.append(RequireGrad(local, t.is_inference()))
        return local

    def _window(self, local: Local, t: Tensor) -> list[Step]:
        """A tensor on the storage of another, to which autograd does not relate it."""
        geometry = geometry_of(t)
        ref, anchor = self.holder(self.table.state(t))
        if t.requires_grad and is_odd(t):
            return self._odd_view(local, t)
        own_version, kind = self._own_version(t, ref), self._kind_of_window(t, ref)
        steps: list[Step] = [WindowOn(local, ref, geometry, anchor, own_version, kind)]
        counting = self._counting_with(t) if own_version and kind is None else None
        if counting is not None:
            steps = [Hold(local, counting), self.point(local, t, Way.DATA)]
        if has_history(t):
            steps += self._history(local, t)
        return steps

    def _odd_view(self, local: Local, t: Tensor) -> list[Step]:
        """A view such as ``t``, whose base is elsewhere, of a window where it lies."""
        how, geometry, window = _torch.creation_meta(t), geometry_of(t), self.local()
        ref, anchor = self.holder(self.table.state(t))
        steps: list[Step] = [WindowOn(window, ref, geometry, anchor, own_version=True)]
        mode = ReplayMode.INFERENCE if how == _torch.CreationMeta.INFERENCE_MODE else ReplayMode.NO_GRAD
        if _torch.leafness(t) is False:
            steps += self._history(window, t)
            mode = ReplayMode.GRAD
        else:
            steps.append(RequireGrad(window))
        outdated = _torch.leafness(t) is None
        steps.append(ReplayView(local, window, aten.alias.default, mode, outdated))
        return [*steps, SetCreationMeta(local, how)]

    def _history(self, local: Local, t: Tensor) -> list[Step]:
        if not differentiable_dtype(t):
            return [RequireGradOfInteger(local)]
        self.attach_now(t)
        return [GiveHistory(local, self._histories[id(t)])]

    def _kind_of_window(self, t: Tensor, ref: Ref) -> bool | None:
        """Whether ``t`` is an inference tensor; None where it goes without saying."""
        here = self.capture.entry_inference
        holder = self._holder(ref)
        if holder is None or holder.is_inference() != t.is_inference():
            return t.is_inference()
        # Outside inference mode an alias of an inference tensor gets a version counter.
        plain = t.is_inference() == here or (not here and _torch.version_of(t) >= 0)
        return None if plain else t.is_inference()

    def _holder(self, ref: Ref) -> Tensor | None:
        """The replica of what the epilogue makes a window on."""
        if isinstance(ref, Result):
            return self.outputs[ref.index].tensor
        known: list[TracedArgument | TracedRoot] = [*self.arguments, *self.roots]
        return next((k.replica for k in known if self.names.get(id(k.replica)) == ref), None)

    def _own_version(self, t: Tensor, ref: Ref) -> bool:
        """Whether ``t`` counts its versions apart from the tensor that the epilogue makes it from."""
        holder = self._holder(ref)
        return holder is not None and _torch.version_groups([holder, t])[1] != 0

    def _counting_with(self, t: Tensor) -> Arg | None:
        """An argument elsewhere with which ``t`` counts versions: it was detached of that, and one got other data."""
        there = [a for a in self.arguments if _torch.version_of(a.replica) >= 0]
        (found,) = _torch.counted_by([t], [a.replica for a in there])
        return None if found is None else Arg(there[found].index)

    # -- views

    def find_histories(self) -> None:
        """Find the tensors, neither arguments nor graph outputs, whose history no op made again would give them."""
        for t, base in list(self.tensors.values()):
            if id(t) in self.names or not has_history(t) or not differentiable_dtype(t):
                continue
            if _torch.leafness(t) is None:  # autograd refuses to say which history it is
                continue
            cut = base is not None and not base.requires_grad  # by detach_, which left its views their histories
            earlier = base is not None and has_earlier_history(t, base)
            current = self._current(t) is not None
            given = base is not None and not self._replayable(t, base) if current else _is_of_function(t)
            if base is None or cut or earlier or given or self._outlives_its_source(t):
                self._histories[id(t)] = self.stand_in(t)

    def _view(self, local: Local, t: Tensor, base: Tensor) -> list[Step]:
        """The steps that make the view ``t`` of ``base`` again.

        A view whose memory was not written since has the history that its op gave it: the op runs again, on what it
        ran on. Any other has, as eager says it, the history of a window on its base as that is now.
        """
        self.tracer.keep.append(t)
        if _torch.base_of(t) is None:
            unsafe = self.tracer.unsafe_views[id(t)]
            if (t.is_conj() or t.is_neg()) and not t.requires_grad:  # only in what a wrapper does are these left lazy
                return self._window(local, t)
            mode = ReplayMode.GRAD if t.requires_grad else ReplayMode.NO_GRAD
            return self._replayed(local, t, self.name(base), unsafe, mode)
        how, made = _torch.creation_meta(t), self._current(t)
        if t.requires_grad and not base.requires_grad and _torch.leafness(t) is None:
            made = None  # it is no op that gave it this history, but a custom Function
        steps: list[Step]
        if id(t) in self._histories:
            ref = self._made_of(made.source, base) if made is not None else self.name(base)
            replay = made.replay if made is not None else self._window_of_base(t, base, geometry_of(t))
            steps = [ReplayView(local, ref, replay, ReplayMode.NO_GRAD), *self._history(local, t)]
            if made is not None:
                steps += self._moved_now(local, t)
            return [*steps, SetCreationMeta(local, how)]
        if made is not None:
            ref = self._made_of(made.source, base)
            steps = self._replayed(local, t, ref, made, self._mode_of(made, base))
            steps += self._moved_now(local, t)
        else:
            ref = self.name(base)
            mode = ReplayMode.NO_GRAD if how == _UNDER_NO_GRAD else ReplayMode.GRAD
            if not base.requires_grad and not t.requires_grad:
                mode = ReplayMode.AMBIENT
            last = self.lasting(t)
            lies = last[0].geometry if last else geometry_of(t)
            if not t.requires_grad and self.table.state(base) is not self.table.state(t):  # the base has left
                steps = [ReplayView(local, ref, aten.alias.default, mode), self._on_own_storage(local, t, base, lies)]
            else:
                replay = self._window_of_base(t, base, lies)
                if t.requires_grad and not base.requires_grad and not is_new_leaf(t):
                    replay = functools.partial(as_if_required, replay)
                steps = [ReplayView(local, ref, replay, mode)]
            if len(steps) == 1 and self._replays_elsewhere(t, base, lies):
                steps.append(Restride(local, lies))
            if how not in (_DEFAULT, _UNDER_NO_GRAD):
                steps.append(SetCreationMeta(local, how))
            steps += [Reshape(local, change.repeat) for change in last]
        first = steps[0]
        if isinstance(first, ReplayView) and not (self._writes_follow or self._counts_alone(t, base)):
            steps[0] = self._at_its_version(first, t, base)
        return steps

    def _mode_of(self, made: Derivation, base: Tensor) -> ReplayMode:
        """The mode in which a view of ``base`` was made, as seen from that in which the call is made."""
        if made.inference and not self.capture.entry_inference:
            return ReplayMode.INFERENCE
        if self.capture.entry_inference and not made.inference:
            return ReplayMode.OUTSIDE_WITH_GRAD if made.grad else ReplayMode.OUTSIDE_WITHOUT_GRAD
        if made.grad == self.capture.entry_grad or not (base.requires_grad or made.source.requires_grad):
            return ReplayMode.AMBIENT
        return ReplayMode.GRAD if made.grad else ReplayMode.NO_GRAD

    def _at_its_version(self, step: ReplayView, t: Tensor, base: Tensor) -> ReplayView:
        """The step that makes the view ``t``, so that autograd takes it for made when it was.

        That is before a write, if eager refuses to say its history, or if what it was made of is refused since.
        """
        made = self._current(t)
        known: list[TracedArgument | TracedRoot] = [*self.arguments, *self.roots]
        counter = next((k for k in known if k.replica is base), None)
        if made is not None and counter is not None and (is_odd(t) or self._is_odd_view(made.source)):
            counted_since = made.source_version != _torch.version_of(made.source)
            if counted_since and made.source_version == counter.version:
                return dataclasses.replace(step, version=self._entry_version(base))
        return dataclasses.replace(step, outdated=_torch.leafness(t) is None)

    def _entry_version(self, t: Tensor) -> Local:
        """Where the version counter of ``t``, an argument or the base of one, stood when the call began."""
        found = self._versions.get(id(t))
        if found is None:
            found = self._versions[id(t)] = self.local()
            self.before.insert(0, NoteVersion(found, self.names[id(t)]))
        return found

    def _replayed(self, local: Local, t: Tensor, ref: Ref, made: Derivation, mode: ReplayMode) -> list[Step]:
        """Let ``t`` be ``made`` again of ``ref``, by one op with what else is wanted of that op's results."""
        notes = self.tracer.views if _torch.base_of(t) is not None else self.tracer.unsafe_views
        leads = t.requires_grad and _torch.leafness(t) is False
        if not leads or not made.with_others([x for x, _ in self.tensors.values() if x.requires_grad], notes):
            return [ReplayView(local, ref, made.replay, mode)]
        assert made.result is not None
        several, steps = self._several.get((made.time, ref, mode)), []
        if several is None:
            several = self._several[made.time, ref, mode] = self.local()
            steps = [ReplayView(several, ref, made.replay.all, mode)]
        return [*steps, PickView(local, several, made.result)]

    def _moved_now(self, local: Local, t: Tensor) -> list[Step]:
        """What takes the real tensor for ``t`` to where it lies by the end, if that has no moment of its own."""
        if id(t) in self._moving or not self._moves(t):
            return []  # later, or only what was made of it before is wanted
        return [self._move(local, t)]

    def _on_own_storage(self, local: Local, t: Tensor, base: Tensor, lies: Geometry) -> PointAt:
        """Take the real tensor for ``t`` to the storage that ``t`` is on."""
        way = Way.DATA if geometry_of(base)[3:] != lies[3:] else Way.SET
        return self.point(local, t, way, lies)

    def _made_of(self, source: Tensor, base: Tensor) -> Ref:
        """The name of what a view was made of: its base, a tensor that is returned too, or a view made for this."""
        if id(source) not in self.names and id(source) not in self.tensors:
            self.tensors[id(source)] = (source, base)
        return self.name(source)


def _bytes_reached(t: Tensor) -> int:
    """How much of its storage ``t`` may touch, from the beginning."""
    return geometry_of(t).elements_reached * t.itemsize if t.numel() else 0


def _is_whole(t: Tensor, state: StorageState) -> bool:
    """Whether ``t`` shows all of the storage it lies on."""
    g = geometry_of(t)
    places = math.prod(n for n, stride in zip(g.shape, g.stride, strict=True) if stride or not n)
    return g.offset == 0 and places * t.itemsize == state.nbytes == _bytes_reached(t)


def _is_of_function(t: Tensor) -> bool:
    """Whether a custom Function gave the view ``t`` the history it has, even if it wrote what it is a view of."""
    of_function = isinstance(_torch.grad_fn_of(t), torch.autograd.function.BackwardCFunction)
    return of_function and _torch.base_of(t) is not None and _torch.creation_meta(t) != _DEFAULT
