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
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import Retrace, TraceMode, UnsupportedError
from aotcheck.autograd.hook_steps import HookSteps
from aotcheck.autograd.partition.components import reached_leaves
from aotcheck.autograd.record import (
    Arg,
    BackwardOnward,
    BumpVersion,
    Constant,
    Detach,
    FlatInput,
    Hold,
    HoldAccumulator,
    Leaf,
    Local,
    Poison,
    Record,
    Ref,
    RenewHistory,
    RequireGradOfInteger,
    Reshape,
    ResizeStorage,
    Restride,
    Result,
    RetainGrad,
    Role,
    Root,
    SetAttribute,
    SetGradient,
    SetGradMode,
    Step,
    Swap,
    TakeHistory,
    Visibility,
    Way,
    Wrap,
    Write,
    WriteFlat,
)
from aotcheck.autograd.results import Results
from aotcheck.autograd.sparse import SparseReplica
from aotcheck.autograd.storage_state import StorageState
from aotcheck.autograd.subclasses import is_wrapper, leaves_of
from aotcheck.autograd.timeline import Timeline
from aotcheck.autograd.trace import geometry_of, recorded_geometry, row_major
from aotcheck.autograd.views import differentiable_dtype, has_earlier_history, has_history
from aotcheck.autograd.wrapped import WrappedResults

if TYPE_CHECKING:
    from aotcheck.autograd.capture import Capture, Onward, TracedArgument, TracedRoot


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
        self.room: dict[int, int] = {}  # id of an input storage's state -> how large it is until the end
        self.histories: list[TakeHistory | RequireGradOfInteger] = []
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
        results = [*[o for o in outputs if isinstance(o, Tensor)], *[g for _, g in gradients if g is not None]]
        returned = [*[o for o in results if not is_wrapper(o)], *self.wrapped.collect(results)]
        for t in returned:
            if isinstance(t, SparseReplica):
                self.results.return_sparse(t)
        hooks = HookSteps(self.capture, self.results)
        custom = [a for a in self.arguments if self.capture.is_custom_view[a.index]]
        # A custom view also shows, by being refused, when its base or another view of that got another history.
        changed = {*self.rebased, *self.kernels.detached}
        known: list[TracedRoot | TracedArgument] = [*self.roots, *self.arguments]
        states = {id(x.state) for x in known if id(x.replica) in changed}
        # Or when a view of it was reshaped in place.
        tracer = self.capture.tracer
        states |= {id(self.table.state(t)) for t in tracer.keep if custom and id(t) in tracer.regeometried}
        if not self.capture.mode.with_custom_views and any(id(a.state) in states for a in custom):
            raise Retrace(TraceMode(with_bases=True, with_custom_views=True))
        if not self.capture.mode.with_bases and (self._needs_bases() or self.wrapped.needs_bases()):
            raise Retrace(dataclasses.replace(self.capture.mode, with_bases=True))
        input_states = self._input_states()
        self._storage_sizes(input_states)
        for state in input_states:
            if state.version > 0:
                self._data(state)
            self._versions(state)
        self.histories += self.wrapped.before()
        moved = self._metadata()
        for o in [*returned, *self.capture.passed.values()]:
            self.results.collect(o)
        held = [*[o for x in placed if isinstance(x, Tensor) for o in leaves_of(x)], *self.capture.passed.values()]
        self.results.anchor_fresh_storages([*returned, *self.capture.passed.values()], held, moved)
        self.results.find_current(input_states)
        hooks.collect()
        self.results.find_histories()
        self.wrapped.make()
        self.results.make_views_of_odd_views()
        self.results.make_leaves()
        cut = [a for a in self.arguments if id(a.replica) in self.kernels.detached and a.requires_grad]
        cut += [a for a in self.arguments if self.results.required_for_a_while(a)]
        kept = self._kept_histories(cut)
        earlier = self._earlier_histories()
        passed = list(
            {id(t): t for t in [*[a.replica for a in self.arguments], *self.capture.passed.values()]}.values()
        )
        hooks.find_stand_ins()
        survivors = [t for t in [*passed, *[r.replica for r in self.roots], *returned] if has_history(t)]
        survivors += [*self.wrapped.survivors(), *hooks.tensors]
        survivors += self.results.stand_for_shared(survivors)
        self.results.group(survivors, self.capture.together)
        hooks.check_cuts()
        self.results.attach_independent()
        timeline = Timeline()
        self.wrapped.schedule(timeline)
        self._schedule_metadata(timeline, moved)
        self._schedule_histories(timeline, kept)
        for moment, t in earlier:
            timeline.at(moment, functools.partial(self.results.settle_before_base, t))
        self._schedule_cuts(timeline, cut)
        self.results.schedule_views(timeline)
        self.wrapped.schedule_views(timeline)
        timeline.run()
        # First those whose making counts as a write, which must not make the others look for their histories.
        objects = [o for o in results if is_wrapper(o)] + list(self.capture.passed.values())
        for o in sorted([*returned, *objects], key=self._order):
            self.results.attach_before(o)
            self.results.name(o)
        returns = [self.results.name(o) if isinstance(o, Tensor) else self._constant(o) for o in outputs]
        self.results.attach_all()
        self._retain_gradients(returned)
        for t, g in gradients:
            fits = g is None or (g.shape, g.dtype) == (t.shape, t.dtype)
            self.steps.append(SetGradient(self.results.name(t), None if g is None else self.results.name(g), fits))
        hooks.register()
        self._shrink()
        self.steps += [Poison(Arg(a.index)) for a in self.capture.poisoned]
        returns = self._swap(outputs, returns)
        self.before[:0] = [self._goes_on(onward) for onward in self.capture.onward]
        if self.capture.exit_grad != self.capture.entry_grad:
            self.steps.append(SetGradMode(self.capture.exit_grad))
        return self._record(returns, input_states)

    # -- helpers

    def _schedule_histories(self, timeline: Timeline, kept: Sequence[tuple[float, TakeHistory | RenewHistory]]) -> None:
        """Let arguments take over their histories when they got them, or when another's history needs theirs."""
        tensors: dict[Ref, TracedRoot | TracedArgument] = {Arg(a.index): a for a in self.arguments}
        tensors.update({r.source: r for r in self.roots})
        wrappers: dict[Ref, Tensor] = {Arg(w.index): w.replica for w in self.capture.wrappers}
        moments = [
            (math.inf if s.target in wrappers else self._moment_of_history(tensors[s.target]), s)
            for s in self.histories
        ]
        for moment, step in [*moments, *kept]:
            t = wrappers[step.target] if step.target in wrappers else tensors[step.target].replica
            self.results.pending.setdefault(id(t), []).append(step)
            timeline.at(moment, functools.partial(self.results.settle_in_turn, t))

    def _moment_of_history(self, x: TracedRoot | TracedArgument) -> float:
        """When the tensor got the history it has: at a write, or else at the end; never in another shape."""
        state, t = self.table.state(x.replica), x.replica
        moment: float = max(x.state.written, state.written if state is not x.state else 0)
        if recorded_geometry(t).shape != x.geometry.shape or not moment:
            moment = max(moment, self.kernels.moved.get(id(t), 0))
        # What is no write of data: set_ of a view, which gives its base another history.
        views = [] if moment else [a.replica for a in self.arguments if _torch.base_of(a.replica) is t]
        told = [self.kernels.moved[id(v)] for v in views if self.capture.tracer.set_calls.get(id(v))]
        return max([moment, *told]) or math.inf

    def _goes_on(self, onward: Onward) -> Step:
        found = [(to, self.results.output(v, Role.INTERMEDIATE_BASE, g, None)) for to, v, g in onward.gradients]
        return BackwardOnward(tuple([to for to, _ in found]), tuple([g for _, g in found]), onward.retained)

    def _order(self, t: Tensor) -> int:
        if _torch.leafness(t) is None:
            return 0
        return 1 if id(t) in self.capture.tracer.reshapings else 2

    def _constant(self, o: Any) -> Ref | Constant:
        for i, generator in self.capture.generators:
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
        if not root.requires_grad or root.real_is_leaf is not False:
            return False
        if isinstance(root.source, Arg) and self.capture.is_custom_view[root.source.index]:
            return True
        late = any(group.cuts for group in self.results.groups)
        return late and _torch.grad_fn_of(root.replica) is not root.grad_fn

    def _arguments_on(self, state: StorageState) -> list[TracedArgument]:
        return [a for a in self.arguments if a.state is state]

    def _needs_bases(self) -> bool:
        """Whether views among the arguments have to be traced as views of their bases.

        Autograd relates them to their bases as soon as one of them gets another history, or a version that makes it
        look for its history again, or requires grad where it did not.
        """
        for a in self.arguments:
            is_view, t = self.capture.is_view[a.index], a.replica
            others = len(self._arguments_on(a.state)) > 1
            if id(t) in self.rebased and (is_view or others):
                return True
            if is_view and a.requires_grad and _torch.version_of(t) != a.version:
                return True
            changed = id(t) in self.kernels.detached or (t.requires_grad and not a.requires_grad)
            if changed and (is_view or others):
                return True
        return False

    # -- data

    def _storage_sizes(self, states: Sequence[StorageState]) -> None:
        """Storages grow before anything else and shrink at the end, when all windows on them have been made."""
        for state in states:
            nbytes, before = state.storage.nbytes(), self.capture.entry_nbytes[id(state)]
            if nbytes != before:
                self.table.flat(state)
            if state.sized:
                self.resized.append(state)
            # What is freed in the end may have held more in between, as the arguments that it was held for still show.
            there = [geometry_of(a.replica) for a in self.arguments if self.table.state(a.replica) is state]
            reached = [g.elements_reached * g.dtype.itemsize for g in there if 0 not in g.shape]
            room = max([nbytes, *reached]) if state.sized else nbytes
            if room > before:
                self.before.append(ResizeStorage(state.source, room))
            self.room[id(state)] = max(room, before)

    def _shrink(self) -> None:
        for state in self.resized:
            if state.storage.nbytes() < self.room[id(state)]:
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
            moved = [a for a in arguments if _torch.version_of(a.replica) != a.version]
            groups = _torch.version_groups([a.replica for a in moved])
            self.before += [BumpVersion(Arg(a.index)) for k, a in enumerate(moved) if groups[k] == k]
            return
        (root,) = roots
        value = self.table.read_view(state.views[root.geometry])
        taken = id(root.replica) in self.rebased and self._stays(root)
        result = self.results.output(value, Role.MUTATED_INPUT, root.geometry, root.replica if taken else None)
        watched: list[TracedRoot | TracedArgument] = [root, *arguments]
        seen = any(_torch.version_of(x.replica) != x.version for x in watched)
        self.before.append(Write(root.source, result, Visibility.VERSION if seen else Visibility.HIDDEN))
        if taken:
            self._take_history(root, result)

    def _stays(self, root: TracedRoot) -> bool:
        return self.table.state(root.replica) is root.state and geometry_of(root.replica) == root.geometry

    def _versions(self, state: StorageState) -> None:
        """Histories that came without data of the same shape, and versions that moved although nothing was written."""
        taken = {s.target for s in self.histories if isinstance(s, (TakeHistory, RequireGradOfInteger))}
        for r in self.roots:
            rebased = id(r.replica) in self.rebased and r.source not in taken
            if r.state is state and rebased and not self.results.lasting(r.replica):
                self._take_history(r, None)
        if state.version == 0:
            reshaped = [a.replica for a in self._arguments_on(state) if self.results.lasting(a.replica)]
            for a in self._arguments_on(state):
                moved = _torch.version_of(a.replica) != a.version and geometry_of(a.replica) == a.geometry
                if moved and _torch.counted_by([a.replica], reshaped) == [None]:  # else that is counted when it is done
                    self.before.append(BumpVersion(Arg(a.index)))

    def _take_history(self, root: TracedRoot, result: Result | None) -> None:
        """``root`` takes over the history that its replica has by now, from ``result`` or from a stand-in."""
        t = root.replica
        if not differentiable_dtype(t):
            self.histories.append(RequireGradOfInteger(root.source))
            return
        source: Result | Local
        if result is not None:
            self.results.attach(result, t)
            source = result
        else:
            source = self.results.stand_in(t)
        counted = _torch.version_of(t) != root.version
        self.histories.append(TakeHistory(root.source, source, counted))

    # -- metadata

    def _metadata(self) -> list[tuple[TracedArgument, str]]:
        """Which arguments lie elsewhere than before: on another ``storage``, or in another ``geometry`` on theirs."""
        changes: list[tuple[TracedArgument, str]] = []
        for a in self.arguments:
            t = a.replica
            geometry, state = geometry_of(t), self.table.state(t)
            if state is not a.state or self._is_leaf_after_set(a):  # whose gradients arrive elsewhere from now on
                changes.append((a, "storage"))
            elif geometry != a.geometry:
                in_place = id(t) in self.capture.tracer.regeometried  # else by .data =, which no version shows
                same_kind = geometry[3:] == a.geometry[3:] and in_place
                changes.append((a, "geometry" if same_kind else "storage"))
            elif self.results.lasting(t):  # to the geometry that it had
                changes.append((a, "geometry"))
        return changes

    def _is_leaf_after_set(self, a: TracedArgument) -> bool:
        """Whether ``a`` is a leaf, and was one, on which ``set_`` was called in a way that autograd noticed."""
        told = self.capture.tracer.set_calls.get(id(a.replica), False)
        return told and bool(a.real_is_leaf) and a.replica.requires_grad and _torch.leafness(a.replica) is True

    def _schedule_metadata(self, timeline: Timeline, changes: Sequence[tuple[TracedArgument, str]]) -> None:
        holds: dict[int, Hold] = {}
        for a, kind in changes:
            if kind == "storage":
                ref, _ = self.results.holder(self.table.state(a.replica))
                holds[a.index] = Hold(self.results.local(), ref)
        shapes = self._accumulated_shapes([a.tensor for a in self.results.attached]) if changes else {}
        made_again = self._accumulated_shapes([t for t, _ in self.results.tensors.values()]) if changes else {}
        for a, _ in changes:
            t, geometry = a.replica, geometry_of(a.replica)
            # A leaf's gradient has the shape that the leaf had when it was first used.
            used = shapes.get(id(t), set())
            if len(used) > 1:
                raise UnsupportedError("change of metadata of a leaf", "it was used both before and after")
            anew = self._used_only_since_set(a)
            kept = anew and used != {geometry.shape}  # what gradients arrive at keeps the shape that it was made for
            steps = self._steps_of_move(a, holds.get(a.index), kept)
            if used == {geometry.shape} and (anew or geometry.shape != a.geometry.shape):
                self.before += steps
                self.results.entered.pop(id(t), None)
                continue
            for shape in (used | made_again.get(id(t), set())) - {geometry.shape}:
                accumulator = HoldAccumulator(self.results.local(), Arg(a.index), row_major(shape, t.dtype), anew)
                self.before.insert(0, accumulator)
            timeline.at(self.kernels.moved.get(id(t), math.inf), functools.partial(self._move, t, steps))

    def _steps_of_move(self, a: TracedArgument, hold: Hold | None, kept: bool) -> list[Step]:
        """What takes ``a`` to where it lies by the end; ``hold`` is of the storage there if it is not its own.

        Changes in place that make up its history are repeated where it then lay. If ``kept``, what gradients of a leaf
        arrive at stays what it is.
        """
        t, own, geometry = a.replica, Arg(a.index), geometry_of(a.replica)
        steps: list[Step] = [] if hold is None else [hold]
        if self._renewed_before_moving(a):
            steps.append(RenewHistory(own))
        last = self.results.lasting(t)
        lies = last[0].geometry if last else geometry
        reshapes = [Reshape(own, change.repeat) for change in last]
        if hold is None:
            return [*steps, *([] if last and lies == a.geometry else [Restride(own, lies)]), *reshapes]
        told = self.capture.tracer.set_calls.get(id(t))
        through_data = told is None or geometry[3:] != a.geometry[3:] or t.is_inference() != a.inference
        way = Way.DATA if through_data or kept else Way.SET if told else Way.SET_UNTOLD
        if last and last[-1].time >= self.kernels.moved.get(id(t), 0):  # it lay there before
            return [*steps, self.results.point(own, t, way, lies, hold.local), *reshapes]
        if last and lies != a.geometry:
            steps.append(Restride(own, lies))
        return [*steps, *reshapes, self.results.point(own, t, way, holder=hold.local)]

    def _renewed_before_moving(self, a: TracedArgument) -> bool:
        """Whether the view ``a`` got the history of a write, as its shape then shows, before its shape changed."""
        t = a.replica
        node = _torch.grad_fn_of(t)
        if node in (None, a.grad_fn) or _torch.base_of(t) is None or geometry_of(t).shape == a.geometry.shape:
            return False
        return recorded_geometry(t).shape == a.geometry.shape

    def _move(self, t: Tensor, steps: Sequence[Step]) -> None:
        self.results.entered.pop(id(t), None)
        self.steps += steps

    def _used_only_since_set(self, a: TracedArgument) -> bool:
        """Whether gradients of the leaf ``a`` arrive where they do since ``set_``, and nowhere else."""
        if not self._is_leaf_after_set(a) or a.replica.is_inference():
            return False
        reached = reached_leaves([x.tensor for x in self.results.attached]).get(id(a.replica), [])
        with torch.inference_mode(False), torch.enable_grad():
            now = torch.autograd.graph.get_gradient_edge(a.replica).node
        return bool(reached) and all(e.node is now for e in reached)

    def _accumulated_shapes(self, tensors: Sequence[Tensor]) -> dict[int, set[tuple[int, ...]]]:
        """By id of a leaf, the shapes in which its gradients arrive from ``tensors``."""
        reached = reached_leaves(tensors)
        return {
            leaf: {_torch.gradient_shape(accumulator.node) for accumulator in accumulators}
            for leaf, accumulators in reached.items()
        }

    def _kept_histories(self, cut: Sequence[TracedArgument]) -> list[tuple[float, TakeHistory | RenewHistory]]:
        """Views that got another history before their base was cut from its own still have that; when at the latest."""
        bases = {id(a.replica): self.kernels.detached[id(a.replica)] for a in cut if not a.replica.requires_grad}
        leaves = {id(a.replica) for a in cut if a.real_is_leaf}
        kept: list[tuple[float, TakeHistory | RenewHistory]] = []
        for view in self.arguments:
            t = view.replica
            node = _torch.grad_fn_of(t)
            leads = node is not None and any(n is not None for n, _ in node.next_functions)
            differs = has_history(t) and leads and node is not view.grad_fn
            if id(_torch.base_of(t)) in bases and differs and differentiable_dtype(t):
                before = bases[id(_torch.base_of(t))] - 0.5
                step: TakeHistory | RenewHistory = RenewHistory(Arg(view.index))
                if id(_torch.base_of(t)) not in leaves:  # of a leaf, a view has another history only if renewed
                    step = TakeHistory(Arg(view.index), self.results.stand_in(t))
                kept.append((before, step))
        return kept

    def _earlier_histories(self) -> list[tuple[float, Tensor]]:
        """Views with a history that their base had before its last one; when they take it over at the latest.

        An op that writes one tensor twice counts both writes first, then gives it both histories, one after the other;
        but a view looks for its own once. So it takes it over by itself, and its base then gets the last one uncounted.
        """
        roots = {id(r.replica): r for r in self.roots if id(r.replica) in self.rebased}
        found = []
        for a in self.arguments:
            root = roots.get(id(_torch.base_of(a.replica)))
            if root is None or not has_earlier_history(a.replica, root.replica):
                continue
            step = TakeHistory(Arg(a.index), self.results.stand_in(a.replica))
            self.results.pending.setdefault(id(a.replica), []).append(step)
            found.append((self._moment_of_history(root) - 0.5, a.replica))
            self.histories = [
                dataclasses.replace(s, counted=False) if isinstance(s, TakeHistory) and s.target == root.source else s
                for s in self.histories
            ]
        return found

    def _schedule_cuts(self, timeline: Timeline, cut: Sequence[TracedArgument]) -> None:
        """Let arguments be cut from their history when they were."""
        for a in cut:
            leaf = bool(a.real_is_leaf)
            requires_again = a.replica.requires_grad and _torch.leafness(a.replica) is True
            if not (leaf and requires_again):
                moment = self.kernels.detached[id(a.replica)]
                timeline.at(moment, functools.partial(self.steps.append, Detach(Arg(a.index), leaf)))

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
        for made in [s for s in (*self.before, *self.steps) if isinstance(s, Wrap) and objects]:
            held = zip(made.wrapping.inner, made.inner, strict=True)  # objects, whichever tensors they are
            self.steps += [SetAttribute(made.local, name, objects[x]) for (name, _), x in held if x in objects]
        return [r if isinstance(r, Constant) else objects.get(r, r) for r in returns]

    def _retain_gradients(self, returned: Sequence[Tensor]) -> None:
        """What is no leaf and was told to keep its gradient."""
        for a in self.arguments:
            retained = self.kernels.retained.get(id(a.replica))
            if retained is not None and retained is a.grad_fn:
                self.before.append(RetainGrad(Arg(a.index)))
        known: dict[int, Tensor] = {id(t): t for t in [*returned, *self.wrapped.survivors()]}
        known.update({id(a.replica): a.replica for a in self.arguments})
        for t in known.values():
            if t.requires_grad and _torch.leafness(t) is False and t.retains_grad:
                if self._retains_of_before(t):
                    raise UnsupportedError("hook", "a gradient is retained of what changed its geometry since")
                self.steps.append(RetainGrad(self.results.name(t)))

    def _retains_of_before(self, t: Tensor) -> bool:
        """Whether ``t`` keeps the gradient of what it was before it changed its geometry, made inside as it is."""
        retained = self.kernels.retained.get(id(t))
        if retained is None or id(t) not in self.capture.tracer.regeometried or retained is _torch.grad_fn_of(t):
            return False
        return not any(a.replica is t and a.grad_fn is retained for a in self.arguments)

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
                Root(r.source, r.requires_grad, r.real_is_leaf is not False, moves=self._moves(r)) for r in self.roots
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
            generators=tuple(i for i, _ in self.capture.generators),
            swapped=tuple(i for i, t in self.capture.passed.items() if any(t is s for s in self.kernels.swapped)),
            wrappers=self.wrapped.roots,
            views=tuple(Leaf(Arg(a.index), a.replica) for a in self.capture.views),
        )
        return record.renumber({old: new for new, old in enumerate(order)})
