"""Reads off the replicas what the function did and writes it down as the steps that repeat it on the caller's tensors.

Note [What precedes attaching]
The steps come in two parts, with the attaching of results to autograd between them. Before: storage sizes, data (which
autograd does not see), and the leaves that gradients go to. After: who is cut from their history, geometries and
storages of the arguments, histories that arguments take over, and at last the tensors that are returned. Within each
part every kind presupposes the earlier ones on the real tensors.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.effects.histories import Histories
from aotcheck.autograd.effects.hook_steps import HookSteps
from aotcheck.autograd.effects.moved_arguments import MovedArguments
from aotcheck.autograd.effects.node_order import order_nodes
from aotcheck.autograd.effects.results import Results
from aotcheck.autograd.effects.views import has_history, is_new_leaf, is_odd
from aotcheck.autograd.effects.wrapped import WrappedResults
from aotcheck.autograd.errors import Retrace, TraceMode, UnsupportedError
from aotcheck.autograd.ir.places import Move
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.ir.storage_state import StorageState
from aotcheck.autograd.ir.trace import Value, geometry_of
from aotcheck.autograd.record.record import FlatInput, Leaf, Record, Role, Root
from aotcheck.autograd.record.steps import (
    Arg,
    BackwardOnward,
    BumpVersion,
    CheckCallerGraph,
    Constant,
    Poison,
    Ref,
    RegisterHook,
    RenewHistory,
    ReplayView,
    RequireGrad,
    RequireGradOfInteger,
    Reshape,
    ResizeStorage,
    RetainGrad,
    SetAttribute,
    SetGradient,
    SetGradMode,
    Step,
    Swap,
    TakeHistory,
    TakeHistoryOfSet,
    Visibility,
    WindowOn,
    Wrap,
    Write,
    WriteFlat,
    counts_write,
)
from aotcheck.autograd.record.timeline import Timeline
from aotcheck.autograd.replicas.sparse import SparseReplica
from aotcheck.autograd.replicas.windows import Reshaping
from aotcheck.autograd.tensors.subclasses import Bundle, is_wrapper, leaves_of
from aotcheck.autograd.tracing.traced_inputs import TracedArgument, TracedRoot

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Arrived, Capture, Onward

aten = torch.ops.aten
_HIDDEN = Visibility.HIDDEN


class EpilogueBuilder:
    """Builds the record of one capture.

    Used once, inside the tracing mode, because reading a value may record the ops that compute it.
    """

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.results = Results(capture)
        self.wrapped = WrappedResults(capture, self.results)
        self.kernels = capture.maker.kernels
        self.table = capture.tracer.table
        self.roots = capture.roots
        self.arguments = capture.arguments
        self.before = self.results.before
        self.steps = self.results.steps
        self.rebased = self.results.rebased
        self.resized: list[StorageState] = []
        self.grown: list[Step] = []
        self.room: dict[int, int] = {}  # id of an input storage's state -> how large it is until the end
        self.histories = Histories(capture, self.results)
        self.moved = MovedArguments(capture, self.results)
        self.objects: Mapping[Ref, Ref] = {}  # a tensor, by the name it had -> which object is it after all swaps

    def build(
        self, outputs: Sequence[Any], placed: Sequence[Any], gradients: Sequence[tuple[Tensor, Tensor | None]]
    ) -> Record:
        """The record of the capture, whose function gave ``outputs`` and left these ``gradients`` to tensors.

        ``placed`` of the outputs are put into what the caller holds.
        """
        for a in self.arguments:
            self.results.names[id(a.replica)] = Arg(a.index)
        for r in self.roots:
            self.results.names.setdefault(id(r.replica), r.source)
        casts = self.capture.casts.made if self.capture.casts is not None else ()
        for t, index in casts:
            self.results.names[id(t)] = Arg(index)
        results = [*[o for o in outputs if isinstance(o, Tensor)], *[g for _, g in gradients if g is not None]]
        met = {*self.results.names, *[id(o) for o in results]}
        results += [t for t, _ in gradients if id(t) not in met]  # leaves that only the graph of results has
        returned = [*[o for o in results if not is_wrapper(o)], *self.wrapped.collect(results)]
        for t in returned:
            if isinstance(t, SparseReplica):
                self.results.return_sparse(t)
        hooks = HookSteps(self.capture, self.results, self.wrapped)
        custom = [a for a in self.arguments if self.capture.inputs.is_custom_view[a.index]]
        # A custom view also shows, by being refused, when its base or another view of that got another history.
        changed = {*self.rebased, *self.kernels.detached}
        known: list[TracedRoot | TracedArgument] = [*self.roots, *self.arguments]
        states = {id(x.state) for x in known if id(x.replica) in changed}
        # Or when a view of it was reshaped in place.
        tracer = self.capture.tracer
        states |= {id(self.table.state(t)) for t in tracer.keep if custom and id(t) in tracer.regeometried}
        shows = any(id(a.state) in states for a in custom)
        # And when it is read after a write: then the function raises.
        written = any(_torch.version_of(a.replica) != a.version for a in custom)
        mode = self.capture.mode
        if not mode.with_custom_views and (shows or (written and not mode.custom_views_tried)):
            raise Retrace(TraceMode(with_bases=True, with_custom_views=True, custom_views_tried=shows))
        if mode.tries_custom_views and not shows:
            raise Retrace(TraceMode(custom_views_tried=True))
        outdated = [a for a in self.arguments if self.capture.inputs.is_outdated[a.index]]
        if not mode.with_outdated and any(id(a.replica) in self.kernels.moved for a in outdated):
            raise Retrace(dataclasses.replace(mode, with_bases=True, with_outdated=True))
        if not self.capture.mode.with_bases and (self._needs_bases() or self.wrapped.needs_bases()):
            raise Retrace(dataclasses.replace(self.capture.mode, with_bases=True))
        input_states = self._input_states()
        self._storage_sizes(input_states, returned)
        moved = self.moved.changes()
        moving = {a.index for a, _ in moved}
        for state in input_states:
            if state.version > 0:
                self._data(state)
            self._versions(state, moving)
        self.histories.taken += self.wrapped.before()
        for o in [*returned, *self.capture.passed.values()]:
            self.results.collect(o)
        held = [*[o for x in placed if isinstance(x, Tensor) for o in leaves_of(x)], *self.capture.passed.values()]
        self.results.anchor_fresh_storages([*returned, *self.capture.passed.values()], held, moved)
        self.results.find_current(input_states)
        self.moved.find_stops()
        hooks.collect()
        self.results.find_histories()
        self.wrapped.make()
        self.results.make_views_of_odd_views()
        self.results.make_leaves()
        self._count_once()
        cut = [a for a in self.arguments if id(a.replica) in self.kernels.detached and a.requires_grad]
        cut += [a for a in self.arguments if self.results.required_for_a_while(a)]
        cut += self.histories.had_for_a_while()
        kept = [*self.histories.kept(cut), *self.wrapped.kept()]
        earlier = self.histories.earlier()
        passed = list(
            {id(t): t for t in [*[a.replica for a in self.arguments], *self.capture.passed.values()]}.values()
        )
        hooks.find_stand_ins()
        survivors = [t for t in [*passed, *[r.replica for r in self.roots], *returned] if has_history(t)]
        survivors += [*self.wrapped.survivors(), *hooks.tensors, *self.histories.written]
        survivors += [t for t, _ in casts if has_history(t)]
        survivors += [*self.results.seen_as_bases(), *self.results.real_views_between()]
        survivors += self.results.parts_beside()
        survivors += self.results.stand_for_shared(survivors)
        self.results.group(survivors, self.capture.together)
        hooks.check_cuts()
        self.results.attach_independent()
        timeline = Timeline()
        self.wrapped.schedule(timeline)
        self.moved.schedule(timeline, moved)
        self.histories.schedule(timeline, kept)
        for moment, t in earlier:
            timeline.at(moment, functools.partial(self.results.settle_before_base, t))
        self.histories.schedule_cuts(timeline, cut)
        self.results.schedule_late(timeline)
        self.results.schedule_stops(timeline)
        self.results.schedule_views(timeline)
        self.wrapped.schedule_views(timeline)
        timeline.run()
        # First those whose making counts as a write, which must not make the others look for their histories.
        objects = [o for o in results if is_wrapper(o)] + list(self.capture.passed.values())
        for o in sorted([*returned, *objects], key=self._order):
            self.results.attach_before(o)
            self.results.name(o)
        self.wrapped.share()
        returns = [self.results.name(o) if isinstance(o, Tensor) else self._constant(o) for o in outputs]
        self.results.attach_all()
        self._retain_gradients(returned, hooks.early)
        self._require_besides(returned)
        for t, g in gradients:
            fits = g is None or (g.shape, g.dtype) == (t.shape, t.dtype)
            self.steps.append(SetGradient(self.results.name(t), None if g is None else self.results.name(g), fits))
        hooks.register()
        order_nodes(self.results)
        self._shrink()
        self.steps += [Poison(Arg(a.index)) for a in self.capture.poisoned]
        returns = self._swap(outputs, returns)
        self._go_on(hooks.early)
        # Some views are made, and some gradients go on, before all else.
        self.before[:0] = [*self.grown, *self.results.holds]
        if self.capture.exit_grad != self.capture.entry_grad:
            self.steps.append(SetGradMode(self.capture.exit_grad))
        return self._record(returns, input_states)

    # -- helpers

    def _go_on(self, hooks: Sequence[tuple[int, Step]]) -> None:
        """Let backwards go on in the caller's graph before anything of the call's is written, or after all is.

        One between writes does so before, once it shows that something was.

        What the function's hooks made of a gradient is in what they bring, so these are registered after that; but for
        ``hooks``, with their moments, which those are to call that come later.
        """
        early = [o for o in self.capture.onward if o.precedes_writes()]
        late = self.capture.onward[len(early) :]
        first: list[Step] = []
        hooks = sorted(hooks, key=lambda x: x[0])

        def due(onward: Onward) -> list[Step]:
            nonlocal hooks
            found = [hook for moment, hook in hooks if moment < onward.moment]
            hooks = [x for x in hooks if x[0] >= onward.moment]
            return found

        checks: list[Step] = []
        for onward in early:
            if onward.follows_writes:
                if self.results.makes_odd_views:
                    raise UnsupportedError("backward inside", "between writes, with a view that autograd then refuses")
                groups = _torch.version_groups([a.replica for a, _ in onward.counted])
                written = tuple([(Arg(a.index), n) for k, (a, n) in enumerate(onward.counted) if groups[k] == k])
                checks.append(CheckCallerGraph(tuple([to for to, _ in onward.gradients]), written))
            first += [*due(onward), *self._counts_before(onward, first), *self._goes_on(onward)]
        if late:
            others = [s for s in self.before if isinstance(s, RegisterHook)]
            counted = [a.replica for a, _ in late[0].counted]
            behind = [s for s in self.before if isinstance(s, BumpVersion) and not self._counted_by(s, counted)]
            self.before[:] = [s for s in self.before if s not in others and s not in behind]
            for onward in late:
                self.before += [*due(onward), *self._counts_before(onward, [*first, *self.before])]
                self.before += self._goes_on(onward)
            self.before += [*behind, *others, *[hook for _, hook in hooks]]
        else:
            first += [hook for _, hook in hooks]
        self.before[:0] = [*checks, *first]

    def _counts_before(self, onward: Onward, steps: Sequence[Step]) -> list[Step]:
        """What counts changes in place that came before ``onward``, for the caller's graph to object to, and that none
        of ``steps`` counts: how arguments lie changes at the end.
        """
        counted = [a.replica for a, _ in onward.counted]
        groups = _torch.version_groups(counted)
        done = [0] * len(counted)
        for step in steps if counted else ():
            if counts_write(step):
                for k in self._counted_by(step, counted):
                    done[k] += 1
        added: list[Step] = []
        for k, (a, count) in enumerate(onward.counted):
            added += [BumpVersion(Arg(a.index))] * (count - done[k] if groups[k] == k else 0)
        return added

    def _counted_by(self, step: BumpVersion | Write, tensors: Sequence[Tensor]) -> list[int]:
        """Which of the arguments' replicas ``tensors`` count versions with what ``step`` counts a write to."""
        known: list[tuple[Ref, Tensor]] = [(r.source, r.replica) for r in self.roots]
        known += [(Arg(a.index), a.replica) for a in self.arguments]
        target = [t for ref, t in known if ref == step.target][:1]
        return [k for k, by in enumerate(_torch.counted_by(tensors, target)) if by is not None]

    def _goes_on(self, onward: Onward) -> Iterator[Step]:
        given: list[Ref] = []
        afterwards: list[Step] = []
        for _, arrived in onward.gradients:
            if not isinstance(arrived, Bundle):
                given.append((yield from self._brought(arrived, afterwards)))
                continue
            leaves: list[Ref] = []
            for x in arrived.leaves:
                leaves.append(x if isinstance(x, Arg) else (yield from self._brought(x, afterwards)))
            given.append(wrapper := self.results.local())
            yield Wrap(wrapper, arrived.wrapping, tuple(leaves))
        free = tuple([not isinstance(arrived, Bundle) and arrived.free for _, arrived in onward.gradients])
        targets = tuple([to for to, _ in onward.gradients])
        kinds = tuple([None if isinstance(arrived, Bundle) else arrived.inference for _, arrived in onward.gradients])
        yield BackwardOnward(targets, tuple(given), onward.retained, free, kinds, onward.mode)
        yield from afterwards

    def _brought(self, arrived: Arrived, afterwards: list[Step]) -> Generator[Step, None, Ref]:
        """Where the gradient is, made by steps that come before; ``afterwards`` are others to be taken then."""
        g, state = arrived.view.geometry, arrived.view.state
        holder, anchor = (state.source, None) if state.is_input else self.results.anchors.get(id(state), (None, 0))
        written = state.version != arrived.version
        copied = written and not state.is_input and g.overlaps_itself  # a leaf takes none over that overlaps
        if holder is None or copied:
            alone = self.results.output(arrived.value, Role.INTERMEDIATE_BASE, g, None)
            if written and not copied:
                last = self.results.output(self._last(arrived), Role.INTERMEDIATE_BASE, g, None)
                afterwards.append(Write(alone, last, _HIDDEN))
            return alone
        # The caller's leaves may take over what others hold: see Note [Gradients taken over].
        window = self.results.local()
        yield WindowOn(window, holder, g, anchor, own_version=False)
        if not state.is_input and written:
            values = arrived.value, self._last(arrived)
            was, now = [self.results.output(v, Role.INTERMEDIATE_BASE, g, None) for v in values]
            yield Write(window, was, _HIDDEN)
            afterwards.append(Write(window, now, _HIDDEN))
        return window

    def _last(self, arrived: Arrived) -> Value:
        """A copy of what is where the gradient was by the end."""
        v = self.table.read_view(arrived.view)
        copy = self.capture.tracer.trace.call(aten.clone.default, (v,))
        copy.geometry, copy.device = v.geometry, v.device
        return copy

    def _order(self, t: Tensor) -> float:
        """What refuses to say its history, then what changed in place, or is made again with what did, as they did."""
        if _torch.leafness(t) is None:
            return 0
        reshapings = self.capture.tracer.reshapings
        changes = [reshapings[id(x)] for x in self.results.chain(t) if id(x) in reshapings] if reshapings else []
        return max([c[-1].time for c in changes], default=math.inf)

    def _constant(self, o: Any) -> Ref | Constant:
        for i, generator in self.capture.inputs.generators:
            if o is generator:
                return Arg(i)
        return Constant(o)

    def _input_states(self) -> list[StorageState]:
        states: list[StorageState] = []
        for r in self.roots:
            if r.state not in states:
                states.append(r.state)
        return states

    def _moves(self, root: TracedRoot) -> bool:
        """Whether a root, no leaf, has another history, or one that autograd refuses to say, before all is attached."""
        if not root.requires_grad:
            return False
        if root.begins_anew:
            return True
        if root.real_is_leaf is not False:  # it is cut off while results lead to it
            again = self.results.begins_late(root.replica)
            return id(root.replica) in self.kernels.detached and (again or self.results.attaches_late)
        if isinstance(root.source, Arg) and self.capture.inputs.is_custom_view[root.source.index]:
            return True
        return self.results.attaches_late and _torch.grad_fn_of(root.replica) is not root.grad_fn

    def _arguments_on(self, state: StorageState) -> list[TracedArgument]:
        return [a for a in self.arguments if a.state is state]

    def _needs_bases(self) -> bool:
        """Whether views among the arguments have to be traced as views of their bases.

        Autograd relates them to their bases as soon as one of them gets another history, or a version that makes it
        look for its history again, or requires grad where it did not, or where a view is made that it is not told of.
        One that lies elsewhere than its base counts versions with it all the same.
        """
        quiet = {id(_torch.base_of(d.tensor)) for d in self.capture.tracer.views.values() if d.inference or not d.grad}
        if any(self.capture.inputs.is_left) and any(
            r.state.version or id(r.replica) in self.rebased for r in self.roots
        ):
            return True
        for a in self.arguments:
            is_view, t = self.capture.inputs.is_view[a.index], a.replica
            others = len(self._arguments_on(a.state)) > 1
            if id(t) in self.rebased and (is_view or others):
                return True
            if is_view and a.requires_grad and _torch.version_of(t) != a.version:
                return True
            changed = id(t) in self.kernels.detached or (t.requires_grad and not a.requires_grad)
            if changed and (is_view or others):
                return True
            if id(t) in quiet and self.capture.inputs.requires_alone[a.index]:
                return True
        return False

    # -- data

    def _storage_sizes(self, states: Sequence[StorageState], returned: Sequence[Tensor]) -> None:
        """Storages grow before anything else and shrink at the end, when all windows on them have been made."""
        for state in states:
            nbytes, before = state.storage.nbytes(), self.capture.entry_nbytes[id(state)]
            if nbytes != before:
                self.table.flat(state)
            room = nbytes
            if state.sized:
                self.resized.append(state)
                # What is freed in the end may have held more in between, as what it was held for still shows.
                shown = [*[a.replica for a in self.arguments], *[t for t in returned if not is_sparse(t)]]
                there = [geometry_of(t) for t in shown if self.table.state(t) is state]
                room = max([nbytes, *[g.reach for g in there]])
            if room > before:
                self.grown.append(ResizeStorage(state.source, room))
            self.room[id(state)] = max(room, before)

    def _shrink(self) -> None:
        smaller = [state for state in self.resized if state.storage.nbytes() < self.room[id(state)]]
        if smaller:  # of what does not fit its storage autograd would not say the history
            looked = [a for _, a in self.results.looked_at_anew() if a.state in smaller]
            self.steps += [RenewHistory(Arg(a.index)) for a in looked if a.geometry.reach > a.state.storage.nbytes()]
        for state in smaller:
            self.steps.append(ResizeStorage(self.results.current[id(state)], state.storage.nbytes()))
        self.steps += self.results.shrink

    def _data(self, state: StorageState) -> None:
        roots = [r for r in self.roots if r.state is state]
        arguments = self._arguments_on(state)
        if state.flat is None and (len(roots) > 1 or roots[0].geometry.may_self_overlap):
            self.table.flat(state)
        if state.flat is not None:
            value = self.table.read_view(state.flat)
            result = self.results.output(value, Role.MUTATED_INPUT, state.flat.geometry, None)
            self.before.append(WriteFlat(state.source, state.flat.geometry.dtype, result))
            moved = [a for a in arguments if self._is_counted(a)]
            groups = _torch.version_groups([a.replica for a in moved])
            self.before += [BumpVersion(Arg(a.index)) for k, a in enumerate(moved) if groups[k] == k]
            return
        (root,) = roots
        value = self.table.read_view(state.views[root.geometry])
        taken = id(root.replica) in self.rebased and self._stays(root) and not self.results.lasting(root.replica)
        result = self.results.output(value, Role.MUTATED_INPUT, root.geometry, root.replica if taken else None)
        watched: list[TracedRoot | TracedArgument] = [root, *arguments]
        seen = any(self._is_counted(x) for x in watched)
        self.before.append(Write(root.source, result, Visibility.VERSION if seen else Visibility.HIDDEN))
        if taken:
            self.histories.take(root, result)

    def _is_counted(self, x: TracedRoot | TracedArgument) -> bool:
        """Whether writes to ``x`` were counted but for changes in place, which count when they are repeated.

        One that eager does on a copy writes too (``squeeze_`` of a conjugate), and by the history that there was.
        """
        counted = _torch.version_of(x.replica) - x.version
        reshaped = [a.replica for a in self.arguments if self.results.lasting(a.replica)] if counted else []
        together = zip(reshaped, _torch.counted_by(reshaped, [x.replica]), strict=True)
        return counted != sum(len(self.results.lasting(t)) for t, by in together if by is not None)

    def _stays(self, root: TracedRoot) -> bool:
        return self.table.state(root.replica) is root.state and geometry_of(root.replica) == root.geometry

    def _versions(self, state: StorageState, moving: Set[int]) -> None:
        """Histories that came without data of the same shape, and versions that moved although nothing was written.

        Those of the arguments ``moving`` are counted when they move.
        """
        kinds = (TakeHistory, TakeHistoryOfSet, RequireGradOfInteger)
        taken = {s.target for s in self.histories.taken if isinstance(s, kinds)}
        for r in self.roots:
            rebased = id(r.replica) in self.rebased and r.source not in taken
            t = r.replica
            if (
                r.state is state
                and rebased
                and (not self.results.lasting(t) or self.results.history_before_changes(t) is not None)
            ):
                self.histories.take(r, None)
        if state.version == 0:
            there = self._arguments_on(state)
            reshaped = [a.replica for a in there if self.results.lasting(a.replica)]
            moved = [a for a in there if _torch.version_of(a.replica) != a.version and a.index not in moving]
            groups = _torch.version_groups([a.replica for a in moved])
            for k, a in enumerate(moved):
                # What is reshaped is counted when that is done.
                if groups[k] == k and _torch.counted_by([a.replica], reshaped) == [None]:
                    self.before.append(BumpVersion(Arg(a.index)))

    def _count_once(self) -> None:
        """A history that is taken over does not count where a write did already, and leaves made since count with it.

        Views of these would look for theirs.
        """
        leaves = [t for t, _ in self.results.tensors.values() if is_new_leaf(t) and id(t) in self.results.names]
        for k, s in enumerate(self.histories.taken if leaves else ()):
            if isinstance(s, TakeHistory) and s.counted:
                taker = [r.replica for r in self.roots if r.source == s.target]
                done = [x for x in self.before if counts_write(x) and self._counted_by(x, taker)]
                if done and taker and any(by is not None for by in _torch.counted_by(leaves, taker)):
                    self.histories.taken[k] = dataclasses.replace(s, counted=False)

    # -- the end

    def _swap(self, outputs: Sequence[Any], returns: list[Ref | Constant]) -> list[Ref | Constant]:
        """Let the caller's objects become the tensors that the function made of them; what is then returned."""
        objects: dict[Ref, Ref] = {}  # a tensor, by the name it had -> which object has become it
        tensors: dict[Ref, Ref] = {}  # and the other way round
        self.objects = objects
        for index, t in self.capture.passed.items():
            wanted, own = self.results.name(t), Arg(index)
            there, has = objects.get(wanted, wanted), tensors.get(own, own)
            if there != own:
                self.steps.append(Swap(own, there))
                objects[wanted], objects[has], tensors[own], tensors[there] = own, there, wanted, has
        retained = [s for s in self.steps if isinstance(s, RetainGrad) and s.target in objects]
        if retained:  # a tensor that keeps its gradient cannot be swapped
            self.steps[:] = [s for s in self.steps if s not in retained]
            self.steps += [RetainGrad(objects[s.target]) for s in retained]
        for made in [s for s in (*self.before, *self.steps) if isinstance(s, Wrap) and objects]:
            held = zip(made.wrapping.inner, made.inner, strict=True)  # objects, whichever tensors they are
            self.steps += [SetAttribute(made.local, name, objects[x]) for (name, _), x in held if x in objects]
        ragged = self.wrapped.of_plain() if objects else ()
        self.steps += [SetAttribute(t, name, objects[x]) for t, name, x in ragged if x in objects]
        return [r if isinstance(r, Constant) else objects.get(r, r) for r in returns]

    def _retain_gradients(self, returned: Sequence[Tensor], early: list[tuple[int, Step]]) -> None:
        """What is no leaf and was told to keep its gradient; ``early`` as for ``_go_on``."""
        kept: set[int] = set()  # ids of those that keep the gradient of the history that they had and have
        for a in self.arguments:
            retained, swapped = self.kernels.retained.get(id(a.replica)), self.capture.passed[a.index] is not a.replica
            stays = _torch.grad_fn_of(a.replica) is retained
            if retained is not None and retained is a.grad_fn and not (swapped and stays):
                if self.capture.onward and self.capture.led_to(a.replica, retained):
                    early.append((self._moment_of_retaining(a), RetainGrad(Arg(a.index))))
                else:
                    self.before.insert(0, RetainGrad(Arg(a.index)))  # before anything is written
                if stays:
                    kept.add(id(a.replica))
        known: dict[int, Tensor] = {id(t): t for t in [*returned, *self.wrapped.survivors()]}
        known.update({id(t): t for t in (*[a.replica for a in self.arguments], *self.capture.passed.values())})
        for t in known.values():
            if id(t) not in kept and t.requires_grad and _torch.leafness(t) is not True and t.retains_grad:
                if self._retains_when_made(t):
                    continue
                if _torch.leafness(t) is None:
                    continue
                if self._retains_of_before(t):
                    if self._retains_in_between(t):
                        continue
                    raise UnsupportedError("hook", "a gradient is retained of what changed its geometry since")
                self.steps.append(RetainGrad(self.results.name(t)))

    def _moment_of_retaining(self, a: TracedArgument) -> int:
        moment = self.kernels.retained_at.get(id(a.replica), 0)
        for onward in self.capture.onward:
            if onward.moment > moment and any(to == Arg(a.index) for to, _ in onward.gradients):
                raise UnsupportedError(
                    "hook", "a gradient is retained of an argument that a backward inside comes to by others too"
                )
        return moment

    def _require_besides(self, returned: Sequence[Tensor]) -> None:
        """Tell arguments and results that are no leaves to require grad, as the function did."""
        told = self.kernels.required_besides
        known = {id(t): t for t in [*returned, *[a.replica for a in self.arguments]] if id(t) in told}
        for t in known.values():
            is_told = told[id(t)] > self.kernels.detached.get(id(t), -1)
            if is_told and t.requires_grad and _torch.leafness(t) is False:
                self.steps.append(RequireGrad(self.results.name(t)))

    def _retains_when_made(self, t: Tensor) -> bool:
        """Let a view ``t`` that is made before a write, which autograd refuses afterwards, keep its gradient at once.

        False if it is made at no such moment.
        """
        ref = self.results.name(t)
        for number, step in enumerate(self.before):
            if isinstance(step, ReplayView) and step.local == ref and (is_odd(t) or step.version is not None):
                self.before.insert(number + 1, RetainGrad(ref))
                return True
        return False

    def _retains_of_before(self, t: Tensor) -> bool:
        """Whether ``t`` keeps the gradient of what it was before it changed its geometry, made inside as it is.

        What was written keeps that of what it became; before that it had not changed its geometry, or eager had failed.
        """
        retained = self.kernels.retained.get(id(t))
        if retained is None or id(t) not in self.capture.tracer.regeometried or retained is _torch.grad_fn_of(t):
            return False
        since = self.kernels.retained_at.get(id(t), 0)
        if all(x.time < since or x.move is Move.DATA for x in self.kernels.left.get(id(t), ())):
            return False
        return not any(a.replica is t and a.grad_fn is retained for a in self.arguments)

    def _retains_in_between(self, t: Tensor) -> bool:
        """Let ``t`` keep its gradient before the changes in place that came after it was told to; False if none are."""
        ref, since = self.results.name(t), self.kernels.retained_at.get(id(t), math.inf)
        for steps in (self.before, self.steps):
            for number, step in enumerate(steps):
                if not isinstance(step, Reshape) or step.target != ref:
                    continue
                change = getattr(step.change, "__self__", None)
                if isinstance(change, Reshaping) and change.time > since:
                    steps.insert(number, RetainGrad(ref))
                    return True
        return False

    def _record(self, returns: list[Ref | Constant], states: Sequence[StorageState]) -> Record:
        order = sorted(range(len(self.results.outputs)), key=lambda k: self.results.outputs[k].role.value)
        steps = (*self.before, *self.steps)
        written = {s.source for s in steps if isinstance(s, WriteFlat)} | {
            s.target for s in steps if isinstance(s, Write)
        }
        touched = {id(r.state) for r in self.roots if r.source in written}
        touched |= {id(s) for s in self.resized}
        flats = tuple(FlatInput(v, source, dtype) for v, source, dtype in self.table.flat_inputs)
        placeholders = {r.placeholder for r in self.roots if id(r.state) in touched}
        settled = {r.source for r in self.roots if id(r.state) not in touched}
        placeholders |= {f.value for f in flats if f.source not in settled}
        record = Record(
            roots=tuple(
                Root(
                    r.source, r.requires_grad, r.real_is_leaf is not False, moves=self._moves(r), inference=r.inference
                )
                for r in self.roots
            ),
            leaves=tuple(self.results.leaves),
            flats=flats,
            outputs=tuple(self.results.outputs),
            attached=tuple(self.results.attached),
            groups=tuple(self.results.groups),
            cuts=self.results.cut_targets(),
            before=tuple(self.before),
            steps=tuple(self.steps),
            returns=tuple(returns),
            written_placeholders=frozenset(placeholders),
            entry_grad=self.capture.entry_grad,
            entry_inference=self.capture.entry_inference,
            generators=tuple(i for i, _ in self.capture.inputs.generators),
            swapped=tuple(i for i, t in self.capture.passed.items() if any(t is s for s in self.kernels.swapped)),
            wrappers=self.wrapped.roots,
            views=tuple(Leaf(Arg(a.index), a.replica) for a in self.capture.views),
        )
        return record.renumber({old: new for new, old in enumerate(order)})
