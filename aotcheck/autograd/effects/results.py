"""How the tensors that a call returns come to be: which of them the graph gives, and how the others are made again.

A returned tensor is an argument, an output of the graph, a view made again on its base, or a window on a storage that
another tensor holds.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import reached_leaves
from aotcheck.autograd.eager_graph.regions import places_met
from aotcheck.autograd.effects.remaking import Remaking
from aotcheck.autograd.effects.views import (
    differentiable_dtype,
    has_earlier_history,
    has_history,
    is_new_leaf,
    is_odd,
    leads_to,
)
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.trace import Geometry, geometry_of, row_major
from aotcheck.autograd.record.record import Leaf, Role
from aotcheck.autograd.record.steps import (
    Arg,
    Bridge,
    Detach,
    Local,
    NoteVersion,
    Ref,
    RenewHistory,
    ReplayView,
    RequireGrad,
    Result,
    Step,
    counts_write,
)
from aotcheck.autograd.record.timeline import Timeline
from aotcheck.autograd.replicas.kernel_state import WriteUnderGrad
from aotcheck.autograd.replicas.replicas import past
from aotcheck.autograd.replicas.sparse import SparseReplica
from aotcheck.autograd.replicas.windows import Derivation
from aotcheck.autograd.tensors.subclasses import is_wrapper
from aotcheck.autograd.tracing.traced_inputs import TracedArgument

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture


class Results(Remaking):
    """What is to be made for one call, and when."""

    def __init__(self, capture: Capture) -> None:
        super().__init__(capture)
        self.leaves: list[Leaf] = []
        self.leaves_of_wrappers: list[tuple[int, Tensor]] = []  # views of wrappers that are leaves, and when made
        self._bridges: dict[Ref, Local] = {}  # what stands for leaves that autograd refuses soon
        self._late_ends: set[int] = set()  # ids of late leaves that results lead to
        self._before_odd: list[Step] = []  # what makes views of views that autograd refuses soon
        self.rebased = {
            id(r.replica)
            for r in self.roots
            if r.replica.requires_grad and r.replica.grad_fn is not r.grad_fn and not r.begins_anew
        }

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
            if base is not None and base.is_inference() and not t.is_inference():
                # Of data made in inference mode no view would count versions.
                keeps = t.requires_grad and not self._is_fresh(base)  # a fresh one is an inference tensor at once
                base = base if keeps or id(base) in self.names else None
            unsafe = self.tracer.unsafe_views.get(id(t))
            if base is None and unsafe is not None and self._lies_as_split(t, unsafe):
                # The op may have run on a copy (of a conjugated tensor, say), of which autograd knows nothing.
                base = unsafe.source if not t.requires_grad or leads_to(t, unsafe.source) else None
            self.tensors[id(t)] = (t, base)
            t = base

    def _lies_as_split(self, t: Tensor, made: Derivation) -> bool:
        """Whether ``t`` lies where the op put it that gave it as a view unknown to autograd."""
        beside = self.table.state(made.source) is self.table.state(t) and not self._moved_since(made)
        there = (made.source_stays and beside) or (id(made.source) in self.names and self._lay_as_at_entry(made))
        stays = geometry_of(t) == made.geometry and id(t) not in self.kernels.moved
        return there and made.intact and stays

    def _lay_as_at_entry(self, made: Derivation) -> bool:
        """Whether the argument of which a window was made had not gone elsewhere before."""
        left = self.kernels.left.get(id(made.source), ())
        return not left or made.time < left[0].time

    def parts_beside(self) -> list[Tensor]:
        """Views made by one op with others that survive, where something attached is computed from them.

        They are cuts (see Note [Cuts]): a backward by them alone calls the hooks on the others, with None.
        """
        views = [(t, base) for t, base in self.tensors.values() if id(t) not in self.names]
        notes = {**self.tracer.views, **self.tracer.unsafe_views} if self.tracer.unsafe_views else self.tracer.views
        parts = [t for t, base in views if self._is_part(t, base, notes) and has_history(t)]
        if not parts:
            return []
        ends, found = self.capture.ends, []
        met = places_met([a.tensor for a in self.attached], ends)
        for t in parts:
            node, made = _torch.grad_fn_of(t), notes[id(t)]
            others = met.get(node, set())
            if node in ends or not others:
                continue
            beside = [x.tensor for x in notes.values() if x.time == made.time and x.result in others]
            found += [x for x in beside if _torch.grad_fn_of(x) is node and self._is_made_so(x, notes[id(x)])]
            if _torch.base_of(t) is None:
                written = others - {x.output_nr for x in found if _torch.grad_fn_of(x) is node}
                as_split = [x for x in notes.values() if x.time == made.time and x.result in written]
                found += [self._part_as_split(x, node, made) for x in as_split]
        for t in found:
            self.collect(t)
        if found:
            self.find_histories()  # of them too: replayed alone they would lead past a custom Function behind them
        return found

    def _part_as_split(self, made: Derivation, node: Any, beside: Derivation) -> Tensor:
        """The part so ``made``, which was written since, as the op gave it with one ``beside`` that is as it was."""
        assert made.result is not None
        then = past(GradientEdge(node, made.result), made.tensor.device, self.kernels)
        with _torch.without_modes():
            g = made.geometry
            _torch.set_geometry(then, _torch.storage_of(beside.tensor), g.offset, g.shape, g.stride)
        self.tracer.unsafe_views[id(then)] = made._replace(tensor=then)
        self.tensors[id(then)] = (then, made.source)
        return then

    def seen_as_bases(self) -> list[Tensor]:
        """What views that are made again show as their base: something attached may be computed from it.

        Not where a custom Function gave the view. The hooks of a module come so, and all belong to one backward.
        """
        made = [(t, b) for t, b in self.tensors.values() if b is not None and b is _torch.base_of(t)]
        bases = {id(b): b for t, b in made if _torch.creation_meta(t) != _torch.CreationMeta.IN_CUSTOM_FUNCTION}
        return [b for b in bases.values() if has_history(b)]

    def real_views_between(self) -> list[Tensor]:
        """Real views of complex tensors of which other views are wanted, and something attached is computed.

        What comes by both is summed up there before it is made complex: see Note [Where sums are made].
        """
        views = [(t, b) for t, b in self.tensors.values() if b is not None and b.dtype.is_complex]
        views = [(t, b) for t, b in views if not t.dtype.is_complex and has_history(t)]
        if not views:
            return []
        met = places_met([a.tensor for a in self.attached], self.capture.ends)
        chained = {id(v): v for t, b in views for v in self.chain(t)[1:] if _torch.base_of(v) is b}
        chained = {k: v for k, v in chained.items() if k not in self.names}  # such are there by themselves
        real = [v for v in chained.values() if not v.dtype.is_complex and has_history(v)]
        found = [v for v in real if _torch.grad_fn_of(v) in met and self._current(v) is not None]
        for v in found:
            self.collect(v)
        if found:
            self.find_histories()  # of them too: their base may have been cut from its own
        return found

    def _is_part(self, t: Tensor, base: Tensor | None, notes: Mapping[int, Derivation]) -> bool:
        """Whether ``t`` is made again of ``base`` by an op that gives several."""
        made = notes.get(id(t))
        if made is None or made.result is None or base is None:
            return False
        return _torch.base_of(t) is None or self._current(t) is not None

    def _is_made_so(self, t: Tensor, made: Derivation) -> bool:
        """Whether ``t`` is as its op ``made`` it."""
        return self._lies_as_split(t, made) if _torch.base_of(t) is None else self._current(t) is not None

    # -- views that have a moment

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
                hidden = self.tracer.unsafe_views.get(id(t))
                if left:
                    timeline.at(0, functools.partial(self.name, t))
                elif hidden is not None and self.kernels.moved.get(id(base), 0) > hidden.time:
                    timeline.at(hidden.time, functools.partial(self.name, t))
                continue
            if not left and (self._renewed_since(t, base) or self._follows_writes(t, base)):
                continue
            if left and self._is_left_behind(t, base):  # it is made where that then lay, whenever it is
                continue
            gone = self._gone_since_renewed(t, base)
            written = self._written_itself(t) if left and has_history(t) and gone is None else 0
            if gone is not None and self.kernels.required.get(id(base), 0) < gone:
                timeline.at(gone - 0.25, functools.partial(self._renew, t))
            elif self.kernels.required.get(id(base), 0) < written:
                timeline.at(written + 0.25, functools.partial(self._renew, t))  # where its base then lay
            later: list[tuple[Tensor, Derivation]] = []
            passed: list[tuple[Tensor, Derivation]] = []
            view = t
            while made is not None and view is not base:
                befell = left or self._changed(made, view) > made.time or self._goes_nowhere(view)
                if befell and id(view) not in self.names:
                    for early, its in [(view, made), *later]:
                        self.tensors.setdefault(id(early), (early, base))
                        # One that went elsewhere itself is cut from its base as it lay then.
                        cut = id(early) in self.tracer.set_calls
                        cut = cut and not (self._went(early) or self._goes_nowhere(early))
                        went = self.kernels.moved.get(id(early), 0) if cut else 0
                        moment = self._early[id(early)] = max(self._history_began(early, its), went)
                        timeline.at(moment, functools.partial(self.name, early))
                    later = []
                elif id(view) not in self.names and not has_history(view) and not made.current:
                    later.append((view, made))  # its base may give no such view any more
                passed.append((view, made))
                view = made.source
                made = self.tracer.views.get(id(view))
            for view, its in reversed(passed):  # whether one waits hangs on whether what it was made of does
                self._schedule_move(timeline, view, its)
        self._schedule_reshaped(timeline)

    def _history_began(self, t: Tensor, made: Derivation) -> int:
        """When the view ``t``, so ``made``, got the history that only its changes in place have come to since."""
        changes = self.lasting(t)
        if not changes or changes[0].version == made.version:
            return made.time
        source: Tensor | None = made.source
        while source is not None:
            left = self.kernels.moved.get(id(source), 0) if id(source) in self.tracer.set_calls else 0
            if made.time < left < changes[0].time:  # it is not to be made of what lies elsewhere by then
                return made.time
            further = self.tracer.views.get(id(source))
            source = None if further is None else further.source
        return changes[0].time

    def _schedule_reshaped(self, timeline: Timeline) -> None:
        """Let views that changed in place do so before others are made, of what is then counted as written.

        Those others are given other data, and would be looked at anew in that shape if this were counted later.
        """
        pairs = [(t, b) for t, b in self.tensors.values() if b is not None] if self.kernels.moved else []
        moved = [
            (self.tracer.views[id(v)].time, b) for v, b in pairs if id(v) in self.tracer.views and self._went_by_data(v)
        ]
        for t, base in pairs if moved else ():
            changes = () if id(t) in self.names else self.lasting(t)
            if changes and any(b is base and made > changes[-1].time for made, b in moved):
                timeline.at(changes[-1].time, functools.partial(self.name, t))

    def _follows_writes(self, t: Tensor, base: Tensor) -> bool:
        """Whether the view ``t`` takes over an earlier history of its base's, once the writes of that are counted."""
        return id(t) in self._histories and has_earlier_history(t, base)

    def make_views_left(self, source: Tensor) -> None:
        """Make the views that the argument ``source`` leaves behind: it goes elsewhere before results are attached."""
        there = self.table.state(source)
        with self.before_attaching():
            for wanted, base in list(self.tensors.values()):
                for view in self.chain(wanted) if base is not None else ():
                    made = self.tracer.views.get(id(view))
                    if made is None or made.source is not source or id(view) in self.names:
                        continue
                    if made.time < self.kernels.moved[id(source)] and self.table.state(view) is not there:
                        self.tensors.setdefault(id(view), (view, base))
                        self._early[id(view)] = made.time
                        self.name(view)

    def _written_itself(self, t: Tensor) -> int:
        """When what ``t`` shows was last written, if an op wrote ``t`` itself under grad, not an alias; 0: none did."""
        writes = [w for w in self.kernels.writes.values() if isinstance(w, WriteUnderGrad)]
        itself = any(w.operands and w.operands[0] is t for w in writes if _torch.op_name(w.kind[0]) != "set_")
        return self.table.state(t).written if itself else 0

    def _renew(self, t: Tensor) -> None:
        self._stage.append(RenewHistory(self.name(t)))

    def _schedule_move(self, timeline: Timeline, view: Tensor, made: Derivation) -> None:
        """Let ``view``, made again where its op put it, go when it did to where it lies by the end."""
        if id(view) in self.names or id(view) in self._moving or not self._moves(view):
            return
        if self.tensors.get(id(view), (view, view))[1] is None:
            return  # it is made where it lies

        def move() -> None:
            wanted = id(view) in self.names or id(view) in self.tensors
            local = self.name(view) if wanted else None
            self._moving.discard(id(view))
            if local is not None:
                self._stage.append(self._move(local, view))

        if self._current(view) is not None:
            self._moving.add(id(view))
            timeline.at(self.kernels.moved[id(view)], move)

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
            stay = [v for v in chain if id(v) not in self.kernels.moved or self._goes_nowhere(v)]
            chain = [v for v in stay if id(v) not in self._histories]
            if base is not None and id(base) in self._histories:  # it was written, or no view of the argument
                continue
            first = None if made is None else next((v for v in chain if self._made_before_writes(v, made)), None)
            if first is not None and base is not None:
                self.tensors.setdefault(id(first), (first, base))
                for x in (first, *[v for v in stay if self._goes_nowhere(v)]):
                    self._early[id(x)] = self.tracer.views[id(x)].time
                self.name(first)
        self._stage, self._writes_follow = stage, False
        self._before_odd = early
        noted = [s for s in self.before if isinstance(s, NoteVersion)]
        self.before[:] = [*noted, *early, *[s for s in self.before if not isinstance(s, NoteVersion)]]

    @property
    def makes_odd_views(self) -> bool:
        """Whether views are made that autograd refuses to make of what counts as written."""
        return bool(self._before_odd)

    # -- what has to be there before results are attached

    def make_leaves(self) -> None:
        """Make the leaves that gradients go to, and the views that were there before their base required grad.

        See Note [What precedes attaching] and Note [In the program's order].
        """
        reached = reached_leaves([a.tensor for a in self.attached])
        self._reached = reached
        self._find_late()
        roots = {id(r.replica) for r in self.roots if r.requires_grad and not r.has_history}
        roots |= {id(w.replica) for w in self.capture.wrappers if w.requires_grad and not w.begins_anew}
        for t, base in list(self.tensors.values()):
            if id(t) in self.names:
                continue
            made = self.tracer.views.get(id(t))
            early = self._preceding_requirement(t, base) if base is not None else []
            if self._begins_as_leaf(t) and id(t) in reached:
                early.append((made.time if made is not None else 0, t))
            quiet = made is not None and made.current and not made.grad
            if base is not None and base.requires_grad and not differentiable_dtype(base) and not quiet:
                early.append((0, t))  # but quietly, no view can be made of it once it requires grad
            for time, view in early:
                if view is not t:
                    self.tensors.setdefault(id(view), (view, base))
                late = any(id(x) in self._late for x in self.chain(view))
                action = functools.partial(self.name, view)
                if late:
                    self._due.append((time, action))
                else:
                    self._preceding.at(time, action)
        for time, view in self.leaves_of_wrappers:
            if id(view) in reached:
                self._preceding.at(time, functools.partial(self.name, view))
        for a in self.arguments:
            if id(a.replica) in self.kernels.required and self._begins_as_leaf(a.replica):
                self._schedule_requirement(a.replica)
        for t, _ in self.tensors.values():  # results of the graph that were leaves for a while
            if id(t) in self.names and not t.requires_grad and id(t) in self.kernels.required and id(t) in reached:
                self._schedule_requirement(t)
        others = list(self.before)
        with self.before_attaching():
            self._preceding.run()
        self._precede_writes(others)
        for (accumulator, *_), t_id in zip(reached.values(), reached, strict=True):
            leaf = _torch.variable_of(accumulator.node)
            if t_id in self._late:
                if t_id not in roots:
                    self._late_ends.add(t_id)
            elif t_id in self.names and t_id not in roots and (is_new_leaf(leaf) or t_id in self._told):
                ref = self.names[t_id]
                self.leaves.append(Leaf(self._bridges.get(ref, ref), leaf))

    def _precede_writes(self, others: Sequence[Step]) -> None:
        """Views that autograd refuses once their base was written are told to require grad before anything is.

        With that comes what happened earlier, of the steps that are not among the ``others``.
        """
        odd: dict[Ref, Tensor] = {Arg(a.index): a.replica for a in self.arguments if is_odd(a.replica)}
        replayed = {s.local for s in self.before if isinstance(s, ReplayView) and (s.outdated or s.version is not None)}
        wanted = [t for t, _ in self.tensors.values()]
        behind = {id(v) for t in wanted for v in self.chain(t)[1:]}  # views of theirs are made later
        made = [(self.names.get(id(t)), t) for t in wanted if is_odd(t) and id(t) not in behind]
        odd |= {ref: t for ref, t in made if isinstance(ref, Local) and ref in replayed}
        known = {id(s) for s in others}
        new = [s for s in self.before if id(s) not in known and not isinstance(s, NoteVersion)]
        told = [k for k, s in enumerate(new) if isinstance(s, RequireGrad) and s.target in odd]
        if not told:
            return
        early = new[: told[-1] + 1]
        moved = {id(s) for s in early}
        # Nor does autograd then say where gradients of theirs arrive.
        ends = {ref for ref, t in odd.items() if id(t) in self._reached}
        bridges = [
            Bridge(self.local(), s.target, self._arriving(odd[s.target]))
            for s in early
            if isinstance(s, RequireGrad) and s.target in ends and isinstance(s.target, Arg | Local)
        ]
        rest = [s for s in self.before if id(s) not in moved]
        first = [k for k, s in enumerate(rest) if isinstance(s, NoteVersion) or any(s is x for x in self._before_odd)]
        there = first[-1] + 1 if first else 0  # those views were made before
        if self.rebased or any(counts_write(s) for s in rest[there:]):  # then it will be outdated by that
            early = [dataclasses.replace(s, outdated=False) if isinstance(s, ReplayView) else s for s in early]
        self.before[:] = [*rest[:there], *early, *bridges, *rest[there:]]
        self._bridges = {b.source: b.local for b in bridges}

    def _arriving(self, t: Tensor) -> Geometry | None:
        """What gradients of the argument ``t`` are like, if not as that is when the call begins; None if they are."""
        argument = next((a for a in self.arguments if a.replica is t), None)
        taken = {_torch.recorded_gradient(e.node) for e in self._reached[id(t)]}
        if argument is None or len(taken) != 1 or taken == {(argument.geometry.shape, argument.geometry.dtype)}:
            return None
        return row_major(*taken.pop())

    def _find_late(self) -> None:
        """Find the leaves that begin later than results are attached: see Note [Late leaves]."""
        wanted = [a.replica for a in self.arguments]
        wanted += [x for made, _ in self.tensors.values() for x in self.chain(made)]
        for t in wanted:
            required = self.kernels.required.get(id(t))
            if required is None or not self._begins_as_leaf(t):
                continue
            if isinstance(self.names.get(id(t)), Result):  # of the graph: it is there from the start
                continue
            chain = self.chain(t)
            befell = [
                known[id(x)]
                for x in chain
                for known in (self.kernels.moved, self.kernels.detached)
                if id(x) in known and (x is not t or id(x) in self._arguments)
            ]
            befell += [
                r.state.written
                for r in self.roots
                if id(r.replica) in self.rebased and any(x is r.replica for x in chain)
            ]
            if any(moment < required for moment in befell):
                self._late[id(t)] = t
        for w in self.capture.wrappers:
            if w.begins_anew and self._told_since_cut(w.replica):
                self._late[id(w.replica)] = w.replica
        for r in self.roots:
            if r.has_history and id(r.replica) in self._reached and id(r.replica) not in self._late:
                raise UnsupportedError("leaf made inside", "an argument cut from its history twice")

    def _told_since_cut(self, t: Tensor) -> bool:
        """Whether the wrapper ``t`` was told to require grad after it was cut from its history, as far as is known."""
        return self.kernels.required.get(id(t), -1) > self.kernels.detached.get(id(t), math.inf)

    def schedule_late(self, timeline: Timeline) -> None:
        """Let late leaves begin when they did, and views of them be made before."""
        for moment, action in self._due:
            timeline.at(moment, action)
        for t in self._late.values():
            self.collect(t)  # it may be known only as what something was made of before
            timeline.at(self.kernels.required[id(t)], functools.partial(self._begin, t))

    def _begin(self, t: Tensor) -> None:
        ref = self.name(t)
        self.steps += [RequireGrad(ref, t.is_inference()), *self.held_accumulators.pop(id(t), ())]
        self._begun.add(id(t))
        if id(t) in self._late_ends:
            self.leaves.append(Leaf(ref, t))

    def schedule_stops(self, timeline: Timeline) -> None:
        """Let leaves made inside stop to require grad when they did."""
        for t, _ in list(self.tensors.values()):
            stops = self.kernels.detached.get(id(t), -1)
            began = stops > self.kernels.required.get(id(t), math.inf) and self._begins_as_leaf(t)
            if began and not t.requires_grad:
                timeline.at(stops, functools.partial(self._stop, t))

    def _stop(self, t: Tensor) -> None:
        self.attach_what_leads_to(t)
        self.steps.append(Detach(self.name(t), leaf=True))

    def _preceding_requirement(self, t: Tensor, base: Tensor) -> list[tuple[int, Tensor]]:
        """The views, from ``t`` to its base, of what was told to require grad only later; and when each was made."""
        found: dict[int, tuple[int, Tensor]] = {}
        chain: list[tuple[int, Tensor]] = []
        while t is not base:
            made = self.tracer.views.get(id(t))
            if made is None:
                break
            if made.current or not has_history(t):  # else autograd looks for its history once more
                chain.append((made.time, t))
            required = self.kernels.required.get(id(made.source), -1)
            if self._begins_as_leaf(made.source):  # and so do views of what was made of it
                found.update({time: (time, view) for time, view in chain if time < required})
            t = made.source
        return list(found.values())

    # -- attaching

    def attach_independent(self) -> None:
        """Attach the groups that hang on no other.

        Those views of arguments that may be made at any time are made in between, so that autograd's nodes are made in
        the order of the program: it is that in which gradients are summed up.
        """
        turns: list[tuple[tuple[int, ...], Callable[[], Any]]] = [
            (group.turn, functools.partial(self._attach_group, number))
            for number, group in enumerate(self.groups)
            if not group.cuts and self._is_ready(number)
        ]
        for t, base in list(self.tensors.values()):
            if base is not None and self._is_undisturbed(t, base):
                turns.append(((_torch.sequence_number(_torch.grad_fn_of(t)),), functools.partial(self.name, t)))
        last = max([turn for turn, _ in turns], default=())
        for number, a in self.looked_at_anew():
            if (number,) < last:
                turns.append(((number,), functools.partial(self.steps.append, RenewHistory(Arg(a.index)))))
        for _, act in sorted(turns, key=lambda x: x[0]):
            act()

    def looked_at_anew(self) -> list[tuple[int, TracedArgument]]:
        """The arguments, views, that were written under no_grad, by when autograd looked for their histories anew."""
        events = (self.rebased, self.kernels.moved, self.kernels.detached, self.kernels.required)
        views = [a for a in self.arguments if a.requires_grad and _torch.version_of(a.replica) != a.version]
        bases = {id(b): b for a in views if (b := _torch.base_of(a.replica)) is not None}
        quiet = [b for b in bases.values() if b.requires_grad and not any(id(b) in known for known in events)]
        found = [x for b in quiet for x in self.rewritten_views(b)]
        return [
            (n, a) for n, a in found if not any(id(a.replica) in known for known in events) and not is_odd(a.replica)
        ]

    def _is_undisturbed(self, t: Tensor, base: Tensor) -> bool:
        """Whether ``t`` is a view of an argument such that nothing befell either, nor what was made in between."""
        if id(t) in self.names or not has_history(t) or self.table.state(base).version or id(t) in self._histories:
            return False
        versions = [a.version for a in self.arguments if a.replica is base]
        if versions != [_torch.version_of(base)]:  # it was made after what counts as a write, and that is done later
            return False
        events = (self.kernels.moved, self.kernels.detached, self.kernels.required)
        made = self._current(t)
        while made is not None and not any(id(x) in known for x in (made.tensor, made.source) for known in events):
            if made.source is base:
                return id(base) in self._arguments and _torch.leafness(t) is False
            made = self._current(made.source)
        return False
