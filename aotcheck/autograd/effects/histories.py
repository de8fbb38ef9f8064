"""Histories that arguments have by the end: when they take them over, keep them, or are cut from their own."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.effects.results import Results
from aotcheck.autograd.effects.views import (
    differentiable_dtype,
    has_earlier_history,
    has_history,
    is_new_leaf,
    leads_by_views_to,
)
from aotcheck.autograd.ir.places import Move
from aotcheck.autograd.ir.trace import geometry_of, recorded_geometry
from aotcheck.autograd.record.steps import (
    Arg,
    Bridge,
    Detach,
    Local,
    Ref,
    RenewHistory,
    RequireGradOfInteger,
    Reshape,
    Result,
    Step,
    TakeHistory,
    TakeHistoryOfSet,
)
from aotcheck.autograd.record.timeline import Timeline
from aotcheck.autograd.replicas.kernel_state import WriteUnderGrad
from aotcheck.autograd.replicas.replicas import past
from aotcheck.autograd.runtime.replays import lead_nowhere
from aotcheck.autograd.tensors.subclasses import is_wrapper
from aotcheck.autograd.tracing.traced_inputs import TracedArgument, TracedRoot

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture


class Histories:
    """The histories of one call's arguments and of the bases of views among them."""

    def __init__(self, capture: Capture, results: Results) -> None:
        self.capture = capture
        self.results = results
        self.kernels = capture.maker.kernels
        self.table = capture.tracer.table
        self.roots = capture.roots
        self.arguments = capture.arguments
        self.steps = results.steps
        self.rebased = results.rebased
        self.taken: list[TakeHistory | TakeHistoryOfSet | RequireGradOfInteger] = []
        self.written: list[Tensor] = []  # what arguments were before they changed their geometry, having been written

    def take(self, root: TracedRoot, result: Result | None) -> None:
        """``root`` takes over the history that its replica has by now, from ``result`` or from a stand-in.

        Changes in place that come to it later are left to come to it by themselves.
        """
        t = root.replica
        before = self.results.history_before_changes(t)
        if before is not None:
            written = past(before, t.device, self.kernels)
            local = self.results.names[id(written)] = self.results.stand_in(written)
            self.written.append(written)
            self.results.takers[id(written)] = t
            self.taken.append(TakeHistory(root.source, local, counted=False))
            return
        if not differentiable_dtype(t):
            self.taken.append(RequireGradOfInteger(root.source))
            return
        by_itself = root.requires_grad and _torch.base_of(t) is None and id(t) not in self.kernels.detached
        of_set = by_itself and id(t) in self.capture.tracer.set_calls
        if of_set and _has_no_derivative(_torch.grad_fn_of(t)):
            self.taken += self._histories_of_set(root)
            return
        source: Result | Local
        if result is not None:
            self.results.attach(result, t)
            source = result
        else:
            source = self.results.stand_in(t)
        counted = _torch.version_of(t) != root.version
        self.taken.append(TakeHistory(root.source, source, counted))

    def _histories_of_set(self, root: TracedRoot) -> list[TakeHistory | TakeHistoryOfSet]:
        """How ``root`` takes over the history of ``set_``, and before that the one of a write that came before."""
        t, node, sources = root.replica, _torch.grad_fn_of(root.replica), list[Ref]()
        place = 0
        while _has_no_derivative(node):
            (node, place), *others = node.next_functions
            own = root.grad_fn is not None  # what it had when the call began, it has until it takes this over
            sources[:0] = [
                root.source if own and x[0] is root.grad_fn else self._leading_to(GradientEdge(*x), t.device)
                for x in others
                if x[0] is not None
            ]
        # Where it stays, no move counts; nor does a write ahead of views that will count by being reshaped.
        stays = self.table.state(t) is root.state and geometry_of(t) == root.geometry
        reshaped = [a.replica for a in self.arguments if a.replica is not t and self.results.lasting(a.replica)]
        counted = stays and not root.state.version and _torch.counted_by([t], reshaped) != [None]
        last = TakeHistoryOfSet(root.source, tuple(sources), counted, recorded_geometry(t))
        if node is None or node is root.grad_fn or root.grad_fn is None:
            return [last]
        then = past(GradientEdge(node, place), t.device, self.kernels)
        local = self.results.names[id(then)] = self.results.stand_in(then)
        self.written.append(then)
        return [TakeHistory(root.source, local, counted=False), last]

    def _leading_to(self, edge: GradientEdge, device: torch.device) -> Ref:
        """A tensor of the call with the history ``edge``: an argument, or a stand-in."""
        leaf = getattr(edge.node, "variable", None)
        for a in self.arguments:
            if a.replica is leaf or (edge.node, edge.output_nr) == (_torch.grad_fn_of(a.replica), a.replica.output_nr):
                return Arg(a.index)
        then = past(edge, device, self.kernels)
        local = self.results.names[id(then)] = self.results.stand_in(then)
        self.written.append(then)
        return local

    def schedule(self, timeline: Timeline, kept: Sequence[tuple[float, TakeHistory | RenewHistory]]) -> None:
        """Let arguments take over their histories when they got them, or when another's history needs theirs."""
        tensors: dict[Ref, TracedRoot | TracedArgument] = {Arg(a.index): a for a in self.arguments}
        tensors.update({r.source: r for r in self.roots})
        wrappers: dict[Ref, Tensor] = {Arg(w.index): w.replica for w in self.capture.wrappers}
        moments = [
            (
                self._moment_of_history(tensors[s.target])
                if s.target in tensors
                else self._before_reshapings(wrappers[s.target]),
                s,
            )
            for s in self.taken
        ]
        for moment, step in [*moments, *kept]:
            t = wrappers[step.target] if step.target in wrappers else tensors[step.target].replica
            pending = self.results.pending.setdefault(id(t), [])
            pending.append(step)
            if isinstance(step.target, Arg) and step in self.taken:
                pending += self._bridges(t, step.target)
            settle = self.results.settle_in_turn if _base_of_wrapper(t) is None else self.results.settle_before_base
            timeline.at(moment, functools.partial(settle, t))

    def _bridges(self, t: Tensor, own: Arg) -> list[Step]:
        """What stands for the argument ``t`` as it was written, before it is reshaped, where results lead there.

        Their gradients come by the argument, of which the caller may have wanted to keep the gradient.
        """
        bridges: list[Step] = []
        for cut in self.results.cuts:
            if self.results.takers.get(id(cut.tensor)) is t:
                bridge = Bridge(self.results.local(), own)
                self.results.names[id(cut.tensor)] = bridge.local
                bridges.append(bridge)
        return bridges

    def _moment_of_history(self, x: TracedRoot | TracedArgument) -> float:
        """When the tensor got the history it has: at a write, or else at the end; never in another shape."""
        state, t = self.table.state(x.replica), x.replica
        since = state is not x.state and not self._precedes_move(t)
        moment: float = max(x.state.written, state.written if since else 0)
        if self.results.history_before_changes(t) is not None:
            return min(moment, self.results.lasting(t)[0].time - 0.5)  # what was written since does not show in it
        moment = min([moment, *self._reshapings_since(t), *self._views_since(x)])
        if recorded_geometry(t).shape != x.geometry.shape or not moment:
            moment = max(moment, self.kernels.moved.get(id(t), 0))
        cut = self.kernels.detached.get(id(t), 0)  # a history that it has now came after that
        told = [m.time for m in self.kernels.left.get(id(t), ()) if m.move is Move.SET and m.time > cut]
        if told and isinstance(x, TracedRoot) and _torch.grad_fn_of(t) is not x.grad_fn:
            moment = max(x.state.written, told[-1])
        # What is no write of data: set_ of a view, which gives its base another history.
        views = [] if moment else [a.replica for a in self.arguments if _torch.base_of(a.replica) is t]
        if not moment:
            views += [v for v, base in self.results.tensors.values() if base is t]
        told = [self.kernels.moved[id(v)] for v in views if self.capture.tracer.set_calls.get(id(v))]
        elsewhere = [v for v in views if self.table.state(v) is not state]
        if elsewhere and (node := _torch.grad_fn_of(t)) is not None:  # it was written where it now lies
            write = self.kernels.write_of(node)
            told += [write.time if isinstance(write, WriteUnderGrad) else self.table.state(elsewhere[0]).written]
        return max([moment, *told]) or math.inf

    def _before_reshapings(self, wrapper: Tensor) -> float:
        """When ``wrapper`` takes over its history, to which views that changed their geometry since then add."""
        base = _base_of_wrapper(wrapper)
        wrapper = wrapper if base is None else base
        tracer = self.capture.tracer
        reshaped = {id(t): t for t in tracer.keep if id(t) in tracer.reshapings and is_wrapper(t)}
        changes = [self.results.lasting(v) for v in reshaped.values() if _torch.base_of(v) is wrapper]
        return min([c[0].time - 0.5 for c in changes if c], default=math.inf)

    def _precedes_move(self, t: Tensor) -> bool:
        """Whether ``t`` got its history before it last went to other memory; what is written there is others'."""
        went = [m.node for m in self.kernels.left.get(id(t), ()) if m.move is Move.DATA]
        node = _torch.grad_fn_of(t)
        return bool(went) and node is not None and _torch.sequence_number(node) < went[-1]

    def _reshapings_since(self, t: Tensor) -> list[float]:
        """Just before when views of ``t`` last changed their geometry, if nothing has been counted as a write since.

        What was written then was hidden from autograd (``.data``).
        """
        changed = [(a.replica, self.results.lasting(a.replica)) for a in self.arguments if a.replica is not t]
        views = [(v, changes[0].time) for v, changes in changed if changes and _torch.base_of(v) is t]
        return [time - 0.5 for v, time in views if _torch.version_groups([t, v])[1] == 0]

    def _views_since(self, x: TracedRoot | TracedArgument) -> list[float]:
        """Just before when views of ``x`` were made that nothing was counted since, if a write was counted before.

        What was written then was hidden from autograd, as by a part of an ``unsafe_split``.
        """
        t = x.replica
        version = _torch.version_of(t)
        if version == x.version:
            return []
        views = self.capture.tracer.views.values()
        return [d.time - 0.5 for d in views if d.source is t and d.source_version == version]

    def kept(self, cut: Sequence[TracedArgument]) -> list[tuple[float, TakeHistory | RenewHistory]]:
        """Views that got another history before their base was cut from its own still have that; when at the latest."""
        gone = [a for a in cut if not a.replica.requires_grad or self.results.begins_late(a.replica)]
        bases = {id(a.replica): self.kernels.detached[id(a.replica)] for a in gone}
        leaves = {id(a.replica) for a in cut if self._was_leaf(a)}
        kept: list[tuple[float, TakeHistory | RenewHistory]] = []
        for view in self.arguments:
            t = view.replica
            # What changes in place have come to its own is repeated.
            differs = self._has_it_still(t) and _leads(t) and self.results.node_before_changes(t) is not view.grad_fn
            if id(_torch.base_of(t)) in bases and differs and differentiable_dtype(t):
                before = bases[id(_torch.base_of(t))] - 0.5
                step: TakeHistory | RenewHistory = RenewHistory(Arg(view.index))
                if id(_torch.base_of(t)) not in leaves:  # of a leaf, a view has another history only if renewed
                    step = TakeHistory(Arg(view.index), self._stand_in_before_changes(t))
                    before = min([before, self._moment_of_write(t), *[c.time - 0.5 for c in self.results.lasting(t)]])
                kept.append((before, step))
        return kept

    def _has_it_still(self, t: Tensor) -> bool:
        """Whether ``t`` has a history, and is no view of a leaf, which its base may have become, with that of one."""
        base = _torch.base_of(t)
        if not has_history(t) or base is None or _torch.leafness(base) is not True:
            return has_history(t)
        return not leads_by_views_to(self.results.node_before_changes(t), base)

    def _moment_of_write(self, view: Tensor) -> float:
        """When the base of ``view`` was written as the history of ``view`` says, if it does.

        What is made of either later is to be made later, lest it be taken for written.
        """
        node = self.results.node_before_changes(view)
        while len(node.next_functions) == 1 and node.next_functions[0][0] is not None:  # what the view is made of
            node = node.next_functions[0][0]
            if isinstance(write := self.kernels.write_of(node), WriteUnderGrad):
                return write.time
        return math.inf

    def had_for_a_while(self) -> list[TracedArgument]:
        """Arguments that a write gave a history, and that were then cut from it, which views among them still have."""
        bases = {id(_torch.base_of(a.replica)) for a in self.arguments if self._has_it_still(a.replica)}
        gone = [a for a in self.arguments if id(a.replica) in self.kernels.detached and not a.requires_grad]
        return [a for a in gone if id(a.replica) in bases and not self.results.required_for_a_while(a)]

    def _stand_in_before_changes(self, t: Tensor) -> Local:
        """What has the history that the view ``t`` had before changes in place, which come to it by themselves."""
        if not self.results.lasting(t):
            return self.results.stand_in(t)
        then = past(self.results.edge_before_changes(t), t.device, self.kernels)
        self.results.takers[id(then)] = t
        self.written.append(then)
        local = self.results.names[id(then)] = self.results.stand_in(then)
        return local

    def earlier(self) -> list[tuple[float, Tensor]]:
        """Views with a history that their base had before its last one; when they take it over at the latest.

        An op that writes one tensor twice counts both writes first, then gives it both histories, one after the other;
        but a view looks for its own once. So it takes it over by itself, and its base then gets the last one uncounted.
        """
        roots = {id(r.replica): r for r in self.roots if id(r.replica) in self.rebased}
        found = []
        counted: set[int] = set()  # ids of bases of which a view takes over a history already
        for a in self.arguments:
            root = roots.get(id(_torch.base_of(a.replica)))
            if root is None or not has_earlier_history(a.replica, root.replica):
                continue
            # Only the first counts, lest the others find theirs outdated.
            moment, t, changes = self._moment_of_history(root), a.replica, self.results.lasting(a.replica)
            moment = min([moment, *[c.time for c in changes]])
            local = self._stand_in_before_changes(t)
            step = TakeHistory(Arg(a.index), local, id(root.replica) not in counted)
            counted.add(id(root.replica))
            self.results.pending.setdefault(id(a.replica), []).append(step)
            # Before the root, whenever that is.
            found.append((min(moment, sys.float_info.max) - 0.5, a.replica))
            self.taken = [
                dataclasses.replace(s, counted=False) if isinstance(s, TakeHistory) and s.target == root.source else s
                for s in self.taken
            ]
        return found

    def schedule_cuts(self, timeline: Timeline, cut: Sequence[TracedArgument]) -> None:
        """Let arguments be cut from their history when they were."""
        for a in cut:
            if is_new_leaf(a.replica) and not self.results.begins_late(a.replica):
                continue
            timeline.at(self.kernels.detached[id(a.replica)], functools.partial(self._cut, a))

    def _cut(self, a: TracedArgument) -> None:
        if self.results.begins_late(a.replica) and not is_new_leaf(a.replica):
            self.results.attach_what_leads_to(a.replica)
        self.steps.append(Detach(Arg(a.index), self._was_leaf(a)))
        if a.requires_grad or not differentiable_dtype(a.replica):
            return
        for view in self.arguments:
            t = view.replica
            known = has_history(t) and _torch.grad_fn_of(t) is not None
            if _torch.base_of(t) is a.replica and known and not (_leads(t) or view.requires_grad):
                self.steps.append(Reshape(Arg(view.index), lead_nowhere))

    def _was_leaf(self, a: TracedArgument) -> bool:
        """Whether ``a``, which is cut from its history, was a leaf that required grad, rather than written."""
        return a.real_is_leaf is not False and (a.requires_grad or self.results.required_for_a_while(a))


def _leads(t: Tensor) -> bool:
    """Whether the history of ``t`` leads anywhere: that of a view does not whose base was cut before a write."""
    node = _torch.grad_fn_of(t)
    return node is not None and any(n is not None for n, _ in node.next_functions)


def _base_of_wrapper(t: Tensor) -> Tensor | None:
    """What the wrapper ``t`` is a view of; it takes over an earlier history of that, which comes first."""
    base = _torch.base_of(t) if is_wrapper(t) else None
    return base if is_wrapper(base) else None


def _has_no_derivative(node: Any) -> bool:
    return node is not None and bool(node.name().endswith("NotImplemented"))
