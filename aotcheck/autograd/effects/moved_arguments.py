"""Arguments that lie elsewhere by the end, and how the caller's get there."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import reached_leaves
from aotcheck.autograd.effects.results import Results
from aotcheck.autograd.effects.views import has_history, is_odd
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.places import Left, Move, Stop, way_to
from aotcheck.autograd.ir.storage_state import StorageState
from aotcheck.autograd.ir.trace import Geometry, geometry_of, row_major
from aotcheck.autograd.record.steps import (
    Arg,
    BumpVersion,
    Hold,
    HoldAccumulator,
    Local,
    PointAt,
    Ref,
    RenewHistory,
    RequireGrad,
    Reshape,
    Restride,
    Step,
    Way,
)
from aotcheck.autograd.record.timeline import Timeline
from aotcheck.autograd.runtime.replays import lie_apart
from aotcheck.autograd.tracing.traced_inputs import TracedArgument

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture

_WAYS = {Move.DATA: Way.DATA, Move.SET: Way.SET, Move.SET_UNTOLD: Way.SET_UNTOLD}


_Place = tuple[Geometry, int, bool]  # the storage by its address; whether what lies there is an inference tensor
_Taken = tuple[tuple[int, ...], torch.dtype]  # the gradients that something takes


class MovedArguments:
    """The moves of one call's arguments, changes of their geometry included."""

    def __init__(self, capture: Capture, results: Results) -> None:
        self.capture = capture
        self.results = results
        self.kernels = capture.maker.kernels
        self.table = capture.tracer.table
        self.arguments = capture.arguments
        self.before = results.before
        self.steps = results.steps
        self._stops: dict[int, set[Stop]] = {}  # by id of the replica of an argument that goes from place to place
        self._holds: dict[int, Local] = {}  # by id of the state of a storage of theirs
        # by id of the replica of a leaf that is given another dtype: those in which gradients arrived before
        self._retyped: dict[int, set[torch.dtype]] = {}
        self._counting: set[int] = set()  # ids of replicas of those whose moves count as a write
        self._bumps: list[BumpVersion] = []  # what counts writes that no move does

    def changes(self) -> list[tuple[TracedArgument, str]]:
        """Which arguments lie elsewhere than before: on another ``storage``, or in another ``geometry`` on theirs."""
        changes: list[tuple[TracedArgument, str]] = []
        for a in self.arguments:
            t = a.replica
            geometry, state = geometry_of(t), self.table.state(t)
            # Data of another mode may lie in the same place; the gradients of a leaf may arrive elsewhere from now on.
            other = t.is_inference() != a.inference or self._is_leaf_after_set(a)
            if state is not a.state or other:
                changes.append((a, "storage"))
            elif geometry != a.geometry:
                # Not by .data =, which no version shows.
                in_place = id(t) in self.capture.tracer.regeometried and not self._went_by_data(t)
                same_kind = geometry[3:] == a.geometry[3:] and in_place
                changes.append((a, "geometry" if same_kind else "storage"))
            elif self.results.lasting(t):  # to the geometry that it had
                changes.append((a, "storage" if self._went_by_data(t) else "geometry"))
        return changes

    def _went_by_data(self, t: Tensor) -> bool:
        """Whether it was by ``.data =`` that ``t`` came to lie elsewhere, or where changes in place found it."""
        last, left = self.results.lasting(t), self.kernels.left.get(id(t), ())
        found = any(x.move is Move.DATA and x.time < last[0].time for x in left) if last else False
        return found or self.kernels.went_by_data(t)

    def schedule(self, timeline: Timeline, changes: Sequence[tuple[TracedArgument, str]]) -> None:
        """Let arguments move when they did; before anything is attached where gradients find the new shape."""
        holds: dict[int, Hold] = {}
        for a, kind in changes:
            if kind == "storage":
                ref, _ = self.results.holder(self.table.state(a.replica))
                holds[a.index] = Hold(self.results.local(), ref)
        moves = [(a, self._steps_of_move(a, holds.get(a.index), kept=False)) for a, _ in changes]
        self._counting = {id(a.replica) for a, steps in moves if _count(steps)}
        there = {a.index for a, _ in changes}
        back = [a for a in self.arguments if a.index not in there and id(a.replica) in self.kernels.moved]
        shapes = self._accumulated([a.tensor for a in self.results.attached]) if changes or back else {}
        made_again = self._accumulated([t for t, _ in self.results.tensors.values()]) if changes else {}
        self._hold_accumulators_of_leaves_made_inside()
        for a in back:  # to where they lay, but it may be used only in between
            used = shapes.get(id(a.replica), set())
            self._hold_accumulators(a, used if len(used) == 1 else set(), anew=False)
            if id(a.replica) in self._stops:
                self._schedule_walk(timeline, a, kept=False)
        for a, _ in changes:
            t, geometry = a.replica, geometry_of(a.replica)
            # A leaf's gradient has the shape that the leaf had when it was first used.
            used = shapes.get(id(t), set())
            if len({shape for shape, _ in used}) > 1:
                raise UnsupportedError("change of metadata of a leaf", "it was used both before and after")
            anew = self._used_only_since(a)
            now = {(geometry.shape, geometry.dtype)}
            kept = anew and used != now  # what gradients arrive at keeps the shape that it was made for
            early = used == now and (anew or geometry.shape != a.geometry.shape)
            early = early and not self.results.begins_late(t)
            if id(t) in self._stops and not early:
                self._hold_accumulators(a, used | made_again.get(id(t), set()), anew)
                self._schedule_walk(timeline, a, kept)
                continue
            steps = self._counted(a, self._steps_of_move(a, holds.get(a.index), kept))
            if early:
                self.results.hasty.add(id(t))
                self.results.make_views_left(t)
                self.before += steps
                self.results.entered.pop(id(t), None)
                continue
            self._hold_accumulators(a, used | made_again.get(id(t), set()), anew)
            if (gone := self._first_left(t)) is not None:
                steps[:0] = self._looks(self.results.rewritten_views(t), gone)
            if self._bumps and steps[-1] is self._bumps[-1] and (counted := self._counted_at(t)):
                timeline.at(counted, functools.partial(self.steps.append, steps.pop()))
            timeline.at(self.kernels.moved.get(id(t), math.inf), functools.partial(self._move, t, steps))

    def _counted(self, a: TracedArgument, steps: list[Step]) -> list[Step]:
        """``steps``, that take ``a`` elsewhere, and what counts a write where none of them does but one was counted."""
        if not self._written_unseen(a) or _count(steps):
            return steps
        others = [x for x, _ in self.results.tensors.values()] + [x.replica for x in self.arguments]
        known = [x for x in others if x is not a.replica and (self.results.lasting(x) or id(x) in self._counting)]
        bumped = {s.target for s in [*self.before, *self._bumps] if isinstance(s, BumpVersion)}
        known += [x.replica for x in self.arguments if Arg(x.index) in bumped]
        if _torch.counted_by([a.replica], known) != [None]:
            return steps
        self._bumps.append(BumpVersion(Arg(a.index)))
        return [*steps, self._bumps[-1]]

    def _counted_at(self, t: Tensor) -> int:
        """When last ``t``, or what counts with it, was moved in a way that counts as a write; 0 if none was."""
        known = {id(x): x for x in self.capture.tracer.keep if id(x) in self.kernels.left and _torch.version_of(x) >= 0}
        together = [key for key, x in known.items() if _torch.counted_by([x], [t]) != [None]]
        left = [x for key in together for x in self.kernels.left[key]]
        return max([x.time for x in left if x.move is not Move.DATA], default=0)

    def _written_unseen(self, a: TracedArgument) -> bool:
        """Whether a write of ``a`` was counted, but none where it lay when the call began, nor one of its base."""
        t, base = a.replica, _torch.base_of(a.replica)
        if _torch.version_of(t) == a.version or a.state.version:
            return False
        return base is None or id(base) not in self.results.rebased or _torch.version_groups([base, t])[1] != 0

    # -- places in between

    def find_stops(self) -> None:
        """Find the arguments that go from place to place: see Note [Stops]."""
        views = self.capture.tracer.views
        for wanted, _ in list(self.results.tensors.values()):
            for t in self.results.chain(wanted):
                made = views.get(id(t))
                stop = None if made is None else self.results.stop_of(made)
                if made is not None and stop is not None and self._can_be_reached(stop.storage):
                    self._stops.setdefault(id(made.source), set()).add(stop)
        for a in self.arguments:
            last = self.results.lasting(a.replica)
            left = self.kernels.left.get(id(a.replica), ())
            if self._renewed_in_between(a) is not None:
                self._stops.setdefault(id(a.replica), set())
            if last and any(x.time > last[0].time and x.move is not Move.RESHAPED for x in left):
                self._stops.setdefault(id(a.replica), set())
        for key, ref in list(self.results.current.items()) if self._stops else ():
            if any(ref == Arg(a.index) and id(a.replica) in self._stops for a in self.arguments):
                state = next(r.state for r in self.capture.roots if id(r.state) == key)
                self.results.current[key] = self._held(state)

    def _can_be_reached(self, storage: int) -> bool:
        state = self.table.states.get(storage)
        return state is not None and (state.is_input or id(state) in self.results.anchors)

    def _held(self, state: StorageState) -> Local:
        """What holds the storage of arguments from the beginning, wherever they go."""
        if id(state) not in self._holds:
            local = self._holds[id(state)] = self.results.local()
            self.results.holds.append(Hold(local, state.source))
        return self._holds[id(state)]

    def _schedule_walk(self, timeline: Timeline, a: TracedArgument, kept: bool) -> None:
        """Let ``a`` go from stop to stop, each at its moment, and then to where it lies by the end."""
        t, own, left = a.replica, Arg(a.index), self.kernels.left[id(a.replica)]
        places = [(x.geometry, x.storage, x.inference) for x in left]
        places.append((geometry_of(t), _torch.storage_address(_torch.storage_of(t)), t.is_inference()))
        reshapings = list(self.results.lasting(t))
        renewed = self._renewed_in_between(a)
        moments = sorted(
            {
                *[s.begin for s in self._stops[id(t)]],
                *[r.time for r in reshapings],
                *[x.time for x in left if x is renewed],
                left[-1].time,
            }
        )
        looked_at = self.results.rewritten_views(t)
        at, then = places[0], 0
        done: list[Step] = []
        look: list[Step] = []  # for the history that it has, at a place in between
        for moment in moments:
            began = then
            steps: list[Step] = [RenewHistory(own)] if moment == moments[0] and self._renewed_before_moving(a) else []
            while reshapings and reshapings[0].time <= moment:
                change = reshapings.pop(0)
                k = next(k for k, x in enumerate(left) if x.time == change.time)
                steps += self._looks(looked_at, left[k])
                steps += self._go(a, at, places[k], left, then, change.time - 1, kept)
                steps.append(Reshape(own, change.repeat))
                at, then = places[k + 1], change.time
            k = next(k for k, x in enumerate(left) if x.time == moment)
            steps += self._looks(looked_at, left[k])
            steps += self._go(a, at, places[k + 1], left, then, moment, kept)
            at, then = places[k + 1], moment
            if left[k] is renewed:  # when all that befell it there has been done
                counted = self._written_unseen(a) and not _count([*done, *steps])
                look += [BumpVersion(own)] if counted else []
                look.append(RenewHistory(own))
                timeline.at(left[k + 1].time - 0.25, functools.partial(self.steps.extend, look))
            counts = any(began < x.time <= moment and x.move is not Move.DATA for x in left)
            if counts and not _count(steps) and not a.state.version:  # it came back to where it was
                steps.append(BumpVersion(own))
            done += steps
            if moment == moments[-1]:
                steps += self._counted(a, [*done, *look])[len(done) + len(look) :]
            timeline.at(moment, functools.partial(self._move, t, steps))

    def _first_left(self, t: Tensor) -> Left | None:
        """The first place that ``t`` left for another one."""
        left = self.kernels.left.get(id(t), ())
        there = [
            *[(x.geometry, x.storage) for x in left],
            (geometry_of(t), _torch.storage_address(_torch.storage_of(t))),
        ]
        return next((x for x, before, after in zip(left, there, there[1:], strict=False) if before != after), None)

    def _looks(self, views: list[tuple[int, TracedArgument]], before: Left) -> list[Step]:
        """Let those of the ``views`` look for their histories that did ``before`` their base left a place."""
        steps: list[Step] = []
        while views and views[0][0] < before.node:
            steps.append(RenewHistory(Arg(views.pop(0)[1].index)))
        return steps

    def _go(
        self, a: TracedArgument, at: _Place, to: _Place, left: Sequence[Left], then: int, moment: int, kept: bool
    ) -> list[Step]:
        """From where ``a`` was ``then`` to where it was at a later ``moment``."""
        if at == to:
            return []
        geometry, storage, inference = to
        move = way_to([x for x in left if x.time > then], moment)
        if move is Move.RESHAPED:
            return [self._restride(a, geometry)]
        other = geometry[3:] != at[0][3:] or inference != at[2] or kept
        way = Way.DATA if other else _WAYS[move]
        if not self._can_be_reached(storage):  # nothing there is shown
            return [Reshape(Arg(a.index), functools.partial(lie_apart, geometry))]
        state = self.table.states[storage]
        holder: Ref
        holder, anchor = (self._held(state), None) if state.is_input else self.results.holder(state)
        if anchor is not None:
            geometry = geometry._replace(offset=geometry.offset - anchor)
        return [PointAt(Arg(a.index), holder, geometry, anchor is not None, way, inference)]

    def _restride(self, a: TracedArgument, geometry: Geometry) -> Restride:
        changes = self.capture.tracer.reshapings.get(id(a.replica), ())
        return Restride(Arg(a.index), geometry, not changes or any(c.counted for c in changes))

    def _hold_accumulators(self, a: TracedArgument, taken: set[_Taken], anew: bool) -> None:
        """What gradients of the leaf ``a`` arrive at has ``taken`` such, where they are not like what ``a`` is now."""
        t = a.replica
        for shape, dtype in taken - {(geometry_of(t).shape, t.dtype)}:
            accumulator = HoldAccumulator(self.results.local(), Arg(a.index), row_major(shape, dtype), anew)
            if dtype != t.dtype:
                self._retyped.setdefault(id(t), set()).add(dtype)
            if self.results.begins_late(t):
                self.results.held_accumulators.setdefault(id(t), []).append(accumulator)
                continue
            told = [k for k, s in enumerate(self.before) if isinstance(s, RequireGrad) and s.target == Arg(a.index)]
            self.before.insert(told[0] + 1 if told else 0, accumulator)

    def _hold_accumulators_of_leaves_made_inside(self) -> None:
        """Those of leaves that were given data of another shape after they were used: they arrive in the former."""
        moved = [x for x in self.results.leaves if self.kernels.went_by_data(x.tensor)]
        shapes = self._accumulated([a.tensor for a in self.results.attached]) if moved else {}
        for leaf in moved:
            t, used = leaf.tensor, shapes.get(id(leaf.tensor), set())
            told = [k for k, s in enumerate(self.before) if isinstance(s, RequireGrad) and s.target == leaf.ref]
            if told and len(used) == 1 and used != {(geometry_of(t).shape, t.dtype)}:
                recorded = row_major(*used.pop())
                step = HoldAccumulator(self.results.local(), leaf.ref, recorded, anew=False)
                self.before.insert(told[0] + 1, step)

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
            return [*steps, *([] if last and lies == a.geometry else [self._restride(a, lies)]), *reshapes]
        told = self.capture.tracer.set_calls.get(id(t))
        through_data = (
            told is None
            or self.kernels.went_by_data(t)
            or geometry[3:] != a.geometry[3:]
            or t.is_inference() != a.inference
        )
        way = Way.DATA if through_data or kept else Way.SET if told else Way.SET_UNTOLD
        if last and last[-1].time >= self.kernels.moved.get(id(t), 0):  # it lay there before
            return [*steps, self.results.point(own, t, way, lies, hold.local), *reshapes]
        if last and lies != a.geometry:
            steps.append(self._restride(a, lies))
        return [*steps, *reshapes, self.results.point(own, t, way, holder=hold.local)]

    def _move(self, t: Tensor, steps: Sequence[Step]) -> None:
        self.results.entered.pop(id(t), None)
        if id(t) in self._retyped:
            self.results.attach_what_leads_to(t, self._retyped.pop(id(t)))
        self.steps += steps

    def _is_leaf_after_set(self, a: TracedArgument) -> bool:
        """Whether ``a`` is a leaf, and was one, on which ``set_`` was called in a way that autograd noticed."""
        told = self.capture.tracer.set_calls.get(id(a.replica), False)
        return told and bool(a.real_is_leaf) and a.replica.requires_grad and _torch.leafness(a.replica) is True

    def _used_only_since(self, a: TracedArgument) -> bool:
        """Whether gradients of the leaf ``a`` arrive only where they do since ``set_``, or since its dtype changed."""
        retyped = geometry_of(a.replica).dtype != a.geometry.dtype and _torch.leafness(a.replica) is True
        if not (retyped or self._is_leaf_after_set(a)) or not a.replica.requires_grad or a.replica.is_inference():
            return False
        reached = reached_leaves([x.tensor for x in self.results.attached]).get(id(a.replica), [])
        if not reached:  # at a view made under no_grad none ever do
            return False
        with torch.inference_mode(False), torch.enable_grad():
            now = torch.autograd.graph.get_gradient_edge(a.replica).node
        return all(e.node is now for e in reached)

    def _renewed_before_moving(self, a: TracedArgument) -> bool:
        """Whether the view ``a`` got the history of a write, which shows where it then lay, before it first moved."""
        t = a.replica
        left, changes = self.kernels.left.get(id(t)), self.results.lasting(t)
        if not left or _torch.base_of(t) is None or (changes and changes[0].time == left[0].time):
            return False  # what repeats the changes looks for the history by itself
        node = self.results.node_before_changes(t)
        return node not in (None, a.grad_fn) and _torch.sequence_number(node) < left[0].node

    def _renewed_in_between(self, a: TracedArgument) -> Left | None:
        """Which place the view ``a`` had left last when autograd looked for the history that it has now.

        None if it has the one it came with, or it was at the first or the last of its places.
        """
        t, left = a.replica, self.kernels.left.get(id(a.replica), ())
        if len(left) < 2 or _torch.base_of(t) is None or not has_history(t) or is_odd(t):
            return None
        node = self.results.node_before_changes(t)
        if node in (None, a.grad_fn):
            return None
        before = [x for x in left if x.node <= _torch.sequence_number(node)]
        return before[-1] if before and len(before) < len(left) else None

    def _accumulated(self, tensors: Sequence[Tensor]) -> dict[int, set[_Taken]]:
        """By id of a leaf, the shapes and dtypes in which its gradients arrive from ``tensors``."""
        reached = reached_leaves(tensors)
        return {
            leaf: {_torch.recorded_gradient(x.node) for x in accumulators} for leaf, accumulators in reached.items()
        }


def _reshapes(step: Step) -> bool:
    return isinstance(step, Reshape) and not isinstance(step.change, functools.partial)


def _count(steps: Sequence[Step]) -> bool:
    """Whether any of ``steps`` counts as a write."""
    return any(
        isinstance(s, BumpVersion)
        or (isinstance(s, Restride) and s.counted)
        or _reshapes(s)
        or (isinstance(s, PointAt) and s.way is not Way.DATA)
        for s in steps
    )
