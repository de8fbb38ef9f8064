"""Which results of a call are backpropagated together, found by tracing their backwards: see Note [Stages]."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.backward.beyond import noting_gradients, values_beyond
from aotcheck.autograd.backward.kept import kept_behind, kept_by, self_kept_in
from aotcheck.autograd.backward.live import LiveMemory
from aotcheck.autograd.backward.stage import Stage, Target
from aotcheck.autograd.backward.tangents import Gradient, InTangent, Key, Trained, place_of, tangents_of
from aotcheck.autograd.backward.uneven import noting_uneven
from aotcheck.autograd.backward.written_since import guard
from aotcheck.autograd.eager_graph.components import edges_behind
from aotcheck.autograd.eager_graph.formulas import depends_on_data
from aotcheck.autograd.eager_graph.functions import function_of, met_by_derivatives, name_of
from aotcheck.autograd.eager_graph.saved import has_packed, keeps_itself, kept_for_derivatives
from aotcheck.autograd.effects.capture import Capture
from aotcheck.autograd.effects.views import is_new_leaf
from aotcheck.autograd.errors import RetraceApart, RetraceWithCaptured, UnsupportedError
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.ir.trace import CONSTANT, PLACEHOLDER, Value, ancestors, getitem
from aotcheck.autograd.ops.twins import Kind, info_of
from aotcheck.autograd.partition.default import read_by, saved_values
from aotcheck.autograd.partition.masks import pack_masks, packed
from aotcheck.autograd.record.record import Attached
from aotcheck.autograd.record.steps import Arg, Ref
from aotcheck.autograd.replicas.replicas import Past, Replica
from aotcheck.autograd.state.global_state import AutocastOff
from aotcheck.autograd.tensors.subclasses import Bundle, is_wrapper, leaves_of, wrapping_of
from aotcheck.autograd.tracing.arriving_zeros import Arrival, noting_zeros
from aotcheck.autograd.tracing.sandbox import BackwardTrace, at_versions
from aotcheck.autograd.tracing.traced_inputs import TracedRoot

_WINDOW = torch.ops.aten.as_strided.default


class Stages:
    """Makes the stages of one specialization and traces their backwards."""

    def __init__(self, capture: Capture, inputs: Sequence[Value]) -> None:
        self.capture = capture
        self.inputs = list(inputs)
        self.trace = capture.tracer.trace
        self.live = LiveMemory(capture)
        self.made = list(self.trace.values)  # by the function itself
        self.forward: set[Value] = set()  # what the forward computes
        # Whether arguments lie in the same memory, and which, by value.
        self._memory = {r.placeholder: id(r.state) for r in capture.roots}
        self.shared = len(set(self._memory.values())) < len(self._memory) or bool(capture.record.flats)
        self.firsts: Sequence[Stage] = ()  # the stages of the call's results
        self._written_views: list[tuple[Ref, Tensor, Any]] | None = None  # and the history of each write

    def first(self, forward: set[Value], pack: bool) -> list[Stage]:
        """The stages of the call's results; ``forward`` is what the forward computes.

        ``pack`` tells whether masks that they save are packed.
        """
        capture, self.forward = self.capture, forward
        targets = [Target(r.replica, tuple(r.edges)) for r in capture.roots]
        if capture.wrappers:
            targets += [Target(w.replica, tuple(w.edges)) for w in capture.wrappers]
        if capture.record.leaves:
            edges = zip(capture.record.leaves, capture.leaf_edges, strict=True)
            targets += [Target(x.tensor, tuple(found)) for x, found in edges]
        if capture.views:
            targets += [Target(a.replica, (a.edge,), is_cut=True) for a in capture.views if a.edge is not None]
        if capture.cuts:
            targets += [Target(c.tensor, (c.edge,), is_cut=True) for c in capture.cuts]
        first_cut = len(targets) - len(capture.cuts)
        groups = []
        for group in capture.record.groups:
            inside = {first_cut + k for k in group.inside}
            here = [Target(t.tensor, ()) if k in inside else t for k, t in enumerate(targets)] if inside else targets
            groups.append((group.attached, here))
        with capture.quietly():
            return self._first(groups, pack)

    def _first(self, groups: Sequence[tuple[Sequence[int], Sequence[Target]]], pack: bool) -> list[Stage]:
        capture, forward = self.capture, self.forward
        stages = self.stages_of(1, capture.record.attached, groups)
        while self.live.grew():  # what one stage's backward writes another's may read
            stages = self.stages_of(1, capture.record.attached, groups)
        forward.update(self.trace.states)  # those that a backward goes back to
        forward.update(
            v for v in self.trace.values if v.op is getitem and v.args[0] in forward
        )  # and of draws repeated
        kept = [v for stage in stages for v in self._kept_values(stage)]
        if kept:
            forward.update(ancestors(kept))
        given, outputs = set(self.inputs), {o.value for o in capture.record.outputs}
        for stage in stages:
            forward.update(ancestors(self._made_before(stage)))
            must = self.live.saved_of([w for traced in stage.traces.values() for w in traced.written])
            if must:
                forward.update(ancestors(must))
            saved = saved_values(forward, given, stage.wanted(), self.trace.values)
            # Not views of what is at hand: a later derivative may read that, or another view of it.
            at_hand = forward | given
            stage.saved = list(dict.fromkeys(_all_of_it(v, at_hand, outputs) for v in saved))
            more = [
                *must,
                *self.kept_for_derivatives(stage, forward.union(self.inputs)),
                *self._computed_again_of(stage),
                *self._kept_leaves(stage),
            ]
            if self.shared:
                beside = self._kept_beside(stage)
                forward.update(ancestors(beside))  # a view among them may be of no use to the function
                more += beside
            if more:
                forward.update(v for v in more if v.op is getitem)  # of an op that the forward has
                stage.saved += [v for v in dict.fromkeys(more) if v not in stage.saved]
        if pack and self.trace.drawn:
            pack_masks(self.trace, forward, [s.saved for s in stages], outputs)
            for stage in stages:
                stage.saved = list(dict.fromkeys(packed(v, outputs) for v in stage.saved))
        self.live.refuse_copies([s.saved for s in stages])
        self.firsts = stages
        for stage in stages:
            guard(self.capture, stage)
            stage.cover_of()  # while its graph is at hand
        self.live.settled = True
        return stages

    def _made_before(self, stage: Stage) -> list[Value]:
        """What only the stage's backwards need, but the function itself made, from what the caller may write by then.

        A custom Function may keep it past autograd, in an attribute.
        """
        forward = self.forward
        late = [v for v in self.made if v not in forward and v.memory is None]
        late = [v for v in late if v.op is not PLACEHOLDER and v.op is not CONSTANT] if late else late
        if not late:
            return []
        wanted = ancestors(stage.wanted())
        return [v for v in late if v in wanted]

    def _kept_values(self, stage: Stage) -> list[Value]:
        """What the tensors hold that eager's graph keeps and the stage's backwards read, and the forward does not have.

        It is to have it, though it may not need it itself where it was written past autograd: to compute it later
        would be to read what else the caller may have written by then. What was only computed it has.
        """
        found: list[Value] = []
        if self.capture.only_computes and not stage.custom:
            return found
        for t in {id(t): t for kept in kept_behind(self.capture, stage) for t in kept or ()}.values():
            plain = type(t) in (Replica, Tensor) and not is_sparse(t)
            view = self.capture.tracer.table.known_view(t) if plain else None
            value = view.value if view is not None and view.fits else None
            if value is not None and value not in self.forward and value.op is not PLACEHOLDER:
                found.append(value)
        if found:
            wanted = ancestors(stage.wanted())
            found = [v for v in found if v in wanted]
        return found

    def _kept_leaves(self, stage: Stage) -> list[Value]:
        """The leaves among arguments that eager's graph keeps, themselves or a view, be it for their geometry alone.

        ``swap_tensors`` counts who keeps a tensor.
        """
        leaves: dict[int, TracedRoot] = {}
        for r in self.capture.roots:
            if r.requires_grad and r.real_is_leaf and r.placeholder not in stage.saved:
                leaves[id(r.replica)] = r
        if not leaves:
            return []
        found = [t for kept in kept_behind(self.capture, stage) for t in kept or ()]
        places = {id(x) for t in found for x in (t, _torch.base_of(t))} & leaves.keys()
        known = {k: self.capture.tracer.table.known_view(leaves[k].replica) for k in places}
        return [r.placeholder for k, r in leaves.items() if (x := known.get(k)) and x.value is r.placeholder]

    def _kept_beside(self, stage: Stage) -> list[Value]:
        """What eager's graph keeps of memory of which the stage saves another argument.

        Its backwards read that where one is a transpose of the other, say; derivatives of the backwards read this.
        """
        table = self.capture.tracer.table
        kept = {id(t): t for found in kept_behind(self.capture, stage) for t in found or ()}.values()
        plain = [t for t in kept if type(t) in (Replica, Tensor) and not is_sparse(t)]
        known: list[Value] = []
        for t, view in [(t, table.known_view(t)) for t in plain]:
            if view is not None and view.fits and view.value is not None and table.state(t).is_input:
                self._memory.setdefault(view.value, id(table.state(t)))
                known.append(view.value)
        return self.beside(stage.saved, known)

    def _computed_again_of(self, stage: Stage) -> list[Value]:
        """What hooks of the program's compute anew what they packed of, which a checkpoint does for every backward.

        A first trace of it may read casts that autocast had at hand, others cast once more.
        """
        if self.capture.only_computes and not stage.custom:
            return []
        packed = list({n: None for nodes in stage.behind() for n in nodes if has_packed(n)})
        if not packed:
            return []
        near, found = stage.attached[0].tensor, list[Value]()
        for t in {id(t): t for n in packed for t in self._held_by_hooks(n, near)}.values():
            view = None if type(t) not in (Replica, Tensor) or is_sparse(t) else self.capture.tracer.table.known_view(t)
            if view is not None and view.fits and view.value is not None:
                found.append(view.value)
        return [v for v in found if v in self.forward or v.op is PLACEHOLDER]

    def _held_by_hooks(self, node: Any, near: Tensor) -> list[Tensor]:
        try:
            return kept_by(self.capture, node, near)
        except RuntimeError:  # written since
            return []

    def beside(self, read: Sequence[Value], known: Sequence[Value]) -> list[Value]:
        """Those of the values ``known`` that lie in the memory of an argument that is ``read``."""
        if not self.shared:
            return []
        there = {self._memory[v] for v in read if v in self._memory}
        return [v for v in known if v not in read and self._memory.get(v) in there]

    def stages_of(
        self,
        level: int,
        attached: Sequence[Attached],
        groups: Sequence[tuple[Sequence[int], Sequence[Target]]],
        before: tuple[Stage, ...] = (),
        since: Sequence[tuple[Tensor, int]] = (),
    ) -> list[Stage]:
        """The stages that attach ``attached``, one for each of ``groups``: places, and all targets as it sees them.

        ``before`` and ``since`` as in ``Stage``.
        """
        with AutocastOff():  # as most backwards are called; another state has backwards of its own
            return list(self._make_stages(level, attached, groups, before, tuple(since)))

    def _make_stages(
        self,
        level: int,
        attached: Sequence[Attached],
        groups: Sequence[tuple[Sequence[int], Sequence[Target]]],
        before: tuple[Stage, ...],
        since: tuple[tuple[Tensor, int], ...],
    ) -> Iterator[Stage]:
        tangents = tangents_of(self.capture, attached)
        for group, targets in groups:
            stage = Stage(
                level,
                tuple(group),
                tuple(attached[j] for j in group),
                tuple(tangents[j] for j in group),
                tuple(targets),
                [],
                (),
                before,
                since=since,
            )
            cuts: set[Any] = set()
            for t in targets:
                if t.is_cut:
                    cuts.update([e.node for e in t.edges])
            starts = [_torch.grad_fn_of(a.tensor) for a in stage.attached]
            behind = edges_behind([s for s in starts if s is not None], cuts)
            reached: list[int] = []
            for k, t in enumerate(targets):
                for e in t.edges:
                    if (e.node, e.output_nr) in behind:
                        reached.append(k)
                        break
            stage.reached = tuple(reached)
            met = {*starts, *[n for n, _ in behind]}
            stage.custom = any(isinstance(n, torch.autograd.function.BackwardCFunction) for n in met)
            stage.own = tuple(j for j, a in enumerate(stage.attached) if keeps_itself(a.tensor))
            if level == 1:
                stage.meets_empty = self.capture.meets_empty_views
                kernels = self.capture.maker.kernels
                if self._written_views is None and not kernels.writes:
                    self._written_views = []
                if self._written_views is None or self._written_views or kernels.required:
                    self._find_views(stage)
                stage.entered = self._entered(stage)
                for nodes in stage.behind():
                    for n in nodes:
                        if depends_on_data(n) and n not in stage.asks:
                            stage.asks += (n,)
                stage.aside = self._aside(stage, behind)
            else:
                stage.answers = before[0].answers
                stage.entered = tuple([k for k in before[0].entered if k not in stage.reached])
            everything = tuple(range(len(group)))
            stage.idle = self._idle(stage)
            called = tuple([j for j in everything if j not in stage.idle])
            runs = self._functions_in(stage, [n for n in met if n not in cuts])
            custom = met if stage.custom else ()
            with noting_gradients(self.capture, custom) as given, noting_uneven(self.capture, runs) as uneven:
                if not self._try(stage, called) and len(group) > 1:
                    # Eager's backward from all of them raises too, and will say so when called; saved is what each
                    # needs alone.
                    for j in everything:
                        self._try(stage, (j,))
            stage.look_again()
            if runs:
                self._cut_off(stage, runs, behind, uneven)
            self._find_whether_selective(stage, called)
            stage.beyond = values_beyond(self.capture, stage, given, self.live.contents)
            # A backward inside the backward leads past the graph.
            found = {k for gradients in stage.gradients.values() for k, g in enumerate(gradients) if g is not None}
            stage.reached = tuple(sorted(found.union(stage.reached)))
            stage.note_brought()
            stage.meets_zeros = bool(self.capture.tracer.zeros and stage.watched(self.firsts))
            yield stage

    def _functions_in(self, stage: Stage, nodes: Sequence[Any]) -> dict[Any, Any]:
        """Those of the ``nodes`` that run custom Functions of the program's, and the nodes of those.

        Those of a module's hooks tell each other of a backward that comes by both.
        """
        if not stage.custom and not self.capture.maker.kernels.writes:
            return {}
        found = {n: function_of(n, stage.attached[0].tensor) for n in nodes if n is not None}
        return {n: f for n, f in found.items() if f is not None and not name_of(f).startswith("torch.")}

    def _cut_off(
        self, stage: Stage, runs: Mapping[Any, Any], behind: Collection[tuple[Any, int]], uneven: Collection[Any]
    ) -> None:
        """Find what is to be cut off the ``stage``, of nodes that run custom Functions: see Note [Functions cut off].

        ``behind`` are the edges that lead to nodes; ``uneven`` are known not to be linear.

        Raises:
            RetraceApart: there are some behind results of the call.
        """
        stop = {e.node for t in stage.targets for e in t.edges}
        led_to = Counter(n for n, _ in behind if n in runs and n not in stop)
        changes = any(t.written or t.reshaped or t.brought for t in stage.traces.values())
        # What one gives for some of its gradients may be other than its part of what it gives for all.
        starts = [(n, a.tensor) for a in stage.attached if (n := _torch.grad_fn_of(a.tensor)) is not None]
        given = {(n, t.output_nr) for n, t in starts}
        several = {n for n, places in Counter(n for n, _ in given.union(behind)).items() if places > 1}
        nodes = [n for n in led_to if changes or n in several or n in uneven]
        if not nodes:
            return
        stage.uneven = met_by_derivatives([a.tensor for a in stage.attached], stop, nodes)
        names = {name_of(runs[n]) for n in stage.uneven} - self.capture.apart
        attached = [a.tensor for a in self.capture.record.attached]
        if self.capture.together or any(is_wrapper(t) or is_sparse(t) for t in attached):
            return  # see Note [Functions for all gradients]
        if stage.level == 1 and names:
            raise RetraceApart(names)

    def _idle(self, stage: Stage) -> frozenset[int]:
        """The places of what stands for results that an op keeps for itself, to which only second derivatives lead.

        What backwards from there read is known without tracing them, unless there are custom Functions: see Note
        [Formulas that read more].
        """
        if stage.level > 1 or stage.custom:
            return frozenset()
        heads = [(j, a.tensor) for j, a in enumerate(stage.attached) if isinstance(a.tensor, Past)]
        if not heads:
            return frozenset()
        cuts = {tuple(c.edge) for c in self.capture.cuts}
        idle = frozenset([j for j, t in heads if tuple(t.edge) not in cuts])
        return idle if len(idle) < len(stage.attached) else frozenset()

    def kept_for_derivatives(self, stage: Stage, at_hand: set[Value]) -> list[Value]:
        """What of the values ``at_hand`` later derivatives may read: see Note [Formulas that read more]."""
        attached = zip(stage.attached, stage.behind(), strict=True)
        tensors = {id(t): t for a, nodes in attached for t in kept_for_derivatives(nodes, a.tensor)}
        if not tensors:
            return []
        views = [self.capture.tracer.table.known_view(t) for t in tensors.values() if not is_sparse(t)]
        values = [v.value for v in views if v is not None and v.fits and v.value is not None]
        # Other views of the same memory may be read as well.
        return read_by([whole(v, at_hand) for v in values], at_hand, self.trace.values)

    def _find_views(self, stage: Stage) -> None:
        """The views that ops behind the stage's tensors wrote and keep: see Note [Results of their own gradients]."""
        if self._written_views is None:
            visible = self.capture.visible
            self._written_views = [(*x, w) for x in visible if (w := self_kept_in(self.capture, x[1]))]
        if self._written_views:
            places = {id(a.tensor): j for j, a in enumerate(stage.attached)}
            behind = {n for nodes in stage.behind() for n in nodes}
            found = {id(t): (ref, t) for ref, t, write in self._written_views if write in behind}
            stage.own = tuple(sorted({*stage.own, *[places[k] for k in found if k in places]}))
            stage.views = tuple([x for k, x in found.items() if k not in places])
        required = self.capture.maker.kernels.required
        if required:
            self._find_late_leaves(stage, required)

    def _entered(self, stage: Stage) -> tuple[int, ...]:
        """The views among the targets by whose histories only derivatives of the stage's backwards may come."""
        if not self.capture.views:
            return ()
        first = len(stage.targets) - len(self.capture.cuts) - len(self.capture.views)
        places = [k for k in range(first, first + len(self.capture.views)) if k not in stage.reached]
        if not any(stage.targets[k].edges for k in places):
            return ()
        if not any(_torch.is_write_through_view(n) for nodes in stage.behind() for n in nodes):
            return ()
        return tuple([k for k in places if stage.targets[k].edges])

    def _find_late_leaves(self, stage: Stage, required: Mapping[int, int]) -> None:
        """The leaves that ops behind the stage's tensors keep, and that were told to require grad after that."""
        told = [(ref, t) for ref, t in self.capture.visible if id(t) in required and is_new_leaf(t)]
        reached = {id(stage.targets[k].tensor) for k in stage.reached}
        told = list({id(t): (ref, t) for ref, t in told if id(t) not in reached}.values())
        if told:
            kept = {id(t) for found in kept_behind(self.capture, stage) for t in found or ()}
            stage.views += tuple([x for x in told if id(x[1]) in kept])

    def _try(self, stage: Stage, key: Key) -> bool:
        try:
            self.gradients(stage, key)
        except (UnsupportedError, RetraceWithCaptured):
            raise
        except Exception:
            if stage.asked is None:  # what some backward needs that leaves out what raises
                if stage.aside and self._try(stage.only(frozenset(stage.reached)), key):
                    return False
                for k in stage.reached if len(stage.reached) > 1 else ():
                    self._try(stage.only(frozenset({k})), key)
                if (without := stage.without_arriving(key)) is not stage:
                    self._try(without, key)
            return False
        return True

    def _aside(self, stage: Stage, behind: Iterable[tuple[Any, int]]) -> tuple[GradientEdge, ...]:
        """The leaves aside, where something on the way may do more than give gradients: see Note [Leaves aside]."""
        leaves = [(n, k) for n, k in behind if _torch.accumulates(n)]
        if not leaves:
            return ()
        known = {e.node for t in stage.targets for e in t.edges}
        found = tuple([GradientEdge(n, k) for n, k in leaves if n not in known])
        if not found:
            return ()
        kernels = self.capture.maker.kernels
        nodes = {*[_torch.grad_fn_of(a.tensor) for a in stage.attached], *[n for n, _ in behind]} - known
        custom = stage.custom and any(isinstance(n, torch.autograd.function.BackwardCFunction) for n in nodes)
        return found if custom or kernels.hooks or kernels.packed else ()

    def _find_whether_selective(self, stage: Stage, called: Key) -> None:
        """Whether it shows what a backward leaves out: see Note [Leaves aside]."""
        if stage.level > 1 or len(stage.reached) + bool(stage.aside) < 2:
            return
        does_more = any(t.written or t.reshaped or t.draws or t.brought for t in stage.traces.values())
        stage.selective = does_more or bool(stage.aside and called not in stage.gradients)
        if not stage.selective:
            stage.aside = ()

    def gradients(self, stage: Stage, key: Key) -> list[Gradient]:
        """The gradients of the targets if just the tensors ``key`` have tangents; raises what eager's backward does."""
        found = stage.gradients.get(key)
        if found is None:
            traced = self.trace_of(stage, key, None)
            while self.live.take(traced):
                traced = self.trace_of(stage, key, None)
            stage.traces[key] = traced
            found = stage.gradients[key] = traced.values
        return found

    def gradient(self, stage: Stage, key: Key, r: Tensor) -> Gradient:
        """What the gradient ``r`` of a backward for ``key`` is made of, read while the trace is as that left it."""
        wrapping = wrapping_of(r)
        if wrapping is None:
            return self.capture.tracer.table.read(r)
        inherited: dict[int, Any] = {
            id(x): InTangent(place_of(part), n)
            for part in key
            if isinstance(t := stage.tangent(part), Bundle)
            for n, x in enumerate(t.leaves)
            if isinstance(x, Tensor)
        }
        arguments = {id(a.replica): Arg(a.index) for a in self.capture.arguments}
        leaves: list[Any] = []
        for x in leaves_of(r):
            known = inherited.get(id(x)) or arguments.get(id(x))
            if isinstance(known, Arg) and known not in stage.held:
                if stage.sealed or (stage.before and known not in stage.before[0].held):
                    known = None
                else:
                    stage.held.append(known)
            leaves.append(known or self.capture.tracer.table.read(x))
        return Bundle(wrapping, tuple(leaves))

    def trace_of(self, stage: Stage, key: Key, trained: Trained) -> BackwardTrace:
        """The backward of ``stage`` for the tangents ``key``, traced once more."""
        seeds = [(stage.attached[place_of(part)], stage.tangent(part)) for part in key]
        traced_for = stage.traced_for
        edges = [t.edges if k in traced_for else () for k, t in enumerate(stage.targets)]
        # What lies beyond the ends of a first backward gets no gradients.
        answers = stage.answers if stage.asks or stage.answers or stage.level > 1 else None
        told = [stage.attached[j] for j in sorted(stage.told)]
        zeros, watched, arriving = stage.zeros_from(key), stage.watched(self.firsts), list[Arrival]()
        trace = functools.partial(
            self.capture.backward.trace,
            answers=answers,
            aside=stage.aside,
            told=told,
            zeros=zeros,
            partly=stage.asked is not None,
        )
        kernels = self.capture.maker.kernels
        self.capture.tracer.only_ours = not (stage.custom or kernels.hooks or kernels.packed or self.capture.hooks)
        if watched:
            noting = noting_zeros(self.capture.tracer, watched, stage.left, arriving)
            trace = functools.partial(trace, noting=noting)
        live, ends = self.live.contents, stage.cut_nodes
        try:
            with at_versions(stage.since):
                if trained is not None:
                    return trace(seeds, edges, [trained[place_of(part)] for part in key], ends, live)
                return trace(seeds, edges, None, ends, live, functools.partial(self.gradient, stage, key))
        finally:
            self.capture.tracer.only_ours = False
            if arriving:
                stage.note_arriving(key, arriving)


def whole(v: Value, at_hand: set[Value]) -> Value:
    """What ``v`` is a view of, or that again, as far as it is ``at_hand``."""
    while v.op not in (PLACEHOLDER, CONSTANT) and info_of(v.op).kind is Kind.VIEW and v.args[0] in at_hand:
        v = v.args[0]
    return v


def _all_of_it(v: Value, at_hand: set[Value], outputs: set[Value]) -> Value:
    """What ``v`` is a view of, as far as it is ``at_hand``, if it shows all of that; else ``v`` itself.

    Of what is one of the ``outputs`` it is known whether the caller writes it.
    """
    there = v
    while there.op not in (PLACEHOLDER, CONSTANT, _WINDOW) and info_of(there.op).kind is Kind.VIEW:
        source = there.args[0]
        if there in outputs:
            break
        if source not in at_hand or _elements(source) != _elements(v):
            break
        there = source
    return there


def _elements(v: Value) -> int | None:
    return None if v.geometry is None else v.geometry.numel
