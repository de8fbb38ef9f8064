"""Backwards, cut from the trace when they are first needed, and the derivatives of backwards.

Note [Stages]
A stage is what one autograd Function attaches: tensors, what is saved for them, and the targets that their gradients go
to. The first stages attach the results of a call. A backward under ``create_graph`` gives gradients that are themselves
results: they are traced with their own graph, divided and attached by stages of the next level, whose targets are those
of the stage before and, after them, its tangents. So a second derivative is the first derivative of a backward, a third
that of a second, and what each costs in memory is held by the graph of those who asked for it.

Note [Shared nodes]
The second derivative comes by nodes of the first graph too: the derivative of ``tanh`` is computed from its result, and
that leads to the node of the forward. Eager's backward of a gradient so needs what that node saved, and frees it. The
Function of such a stage holds the contexts of those before, to raise if they are freed and to free them.

Note [Results of their own gradients]
What is saved may be the result itself: the derivative of ``tanh`` is computed from it. Then a second derivative comes
to that result, hooks and all, and goes on from there. So it is a target of the stages of the next level. To hold it
would be a circle that nobody frees, but torch knows how to save a Function's own result, and hooks on what is saved
keep its memory out of it. Where another tensor took over the result's history, its node is where hooks are.

Note [Handles]
To attach the gradients, the tensors they lead to must be at hand in the backward. A leaf is held as it is; autograd
holds it anyhow. Of any other tensor only its place in the caller's graph is wanted, not its memory: a *bridge*, a
tensor without memory whose history is that of the target, stands for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.autocast import OFF, Autocast, autocast_as, autocast_state
from aotcheck.autograd.capture import Capture
from aotcheck.autograd.compile_graph import Compilers, compile_graph, compile_module
from aotcheck.autograd.errors import RetraceWithCaptured, UnsupportedError
from aotcheck.autograd.global_state import autocast_off, without_autocast
from aotcheck.autograd.graph import FakeValues, Graph, cut, define
from aotcheck.autograd.live import LiveMemory
from aotcheck.autograd.partition.components import components, nodes_behind, reached_leaves
from aotcheck.autograd.partition.default import backward_values, read_by, saved_values, scheduled
from aotcheck.autograd.partition.joint import Division
from aotcheck.autograd.partition.masks import pack_masks, packed
from aotcheck.autograd.partition.saved import (
    holds_saved,
    keeps_itself,
    nodes_behind_output,
    runs_once,
    saved_tensors,
)
from aotcheck.autograd.record import Arg, Attached, Result, Role
from aotcheck.autograd.replicas import disarm, rearm
from aotcheck.autograd.runtime import codegen
from aotcheck.autograd.sandbox import BackwardTrace
from aotcheck.autograd.subclasses import (
    Bundle,
    Wrapping,
    coerced,
    is_jagged,
    is_wrapper,
    is_wrapper_type,
    leaves_of,
    wrapping_of,
)
from aotcheck.autograd.trace import CONSTANT, PLACEHOLDER, Geometry, Value, ancestors, geometry_of, getitem

aten = torch.ops.aten


def tangent_geometry(g: Geometry) -> Geometry:
    """The layout in which a backward expects the gradient of an output: the output's own if dense, else row-major."""
    if 0 in g.shape or g.dense_order is None:
        stride: list[int] = []
        step = 1
        for n in reversed(g.shape):
            stride.insert(0, step)
            step *= max(n, 1)
        return Geometry(0, g.shape, tuple(stride), g.dtype, False, False)
    return Geometry(0, g.shape, g.stride, g.dtype, False, False)


Key = tuple[Any, ...]  # which tensors have tangents, each by its place; with what the tangent is like where that is odd
# For each tensor of a stage whether its tangent requires grad; None of a backward that has no graph of its own.
Trained = tuple[bool, ...] | None
Tangent = Value | Bundle
Gradient = Value | Bundle | None


@dataclasses.dataclass(frozen=True)
class InTangent:
    """What a gradient holds of a tangent: leaf ``leaf`` of the one with place ``place``."""

    place: int
    leaf: int


def _placeholder(g: Geometry, device: torch.device) -> Value:
    t = Value(PLACEHOLDER, (), {})
    t.device, t.geometry = device, tangent_geometry(g)
    return t


def _bundle(wrapping: Wrapping, leaves: Sequence[Tensor], jagged: bool) -> Bundle:
    """A tangent that is a wrapper like this; what says how ragged it is, it has in common with its result."""
    found = [x if jagged and k else _placeholder(geometry_of(x), x.device) for k, x in enumerate(leaves)]
    sizes, strides, _ = wrapping.outer
    if all(type(n) is int for n in (*sizes, *strides)):
        dense = tangent_geometry(Geometry(0, sizes, strides, torch.float32, False, False))
        wrapping = dataclasses.replace(wrapping, outer=(sizes, dense.stride, 0))
    return Bundle(dataclasses.replace(wrapping, is_parameter=False), tuple(found))


def inputs_of(tangents: Iterable[Tangent]) -> list[Value]:
    """The inputs of a backward's graph that these tangents are."""
    return [x for t in tangents for x in (t.leaves if isinstance(t, Bundle) else (t,)) if type(x) is Value]


def values_of(gradients: Iterable[Gradient]) -> list[Value | None]:
    """The values of the trace that these gradients are made of."""
    return [
        x for g in gradients for x in (g.leaves if isinstance(g, Bundle) else (g,)) if x is None or type(x) is Value
    ]


@dataclasses.dataclass(frozen=True)
class Target:
    """What gradients go to: a replica, and where in autograd's graph they arrive."""

    tensor: Tensor
    edges: tuple[GradientEdge, ...]
    is_cut: bool = False  # gradients go no further from here, as they would in the trace: see Note [Cuts]


@dataclasses.dataclass
class Stage:
    """Tensors that are backpropagated together: see Note [Stages] and Note [Components].

    ``places`` are those of its tensors among everything attached with them. ``targets`` are all there are,
    ``reached`` those that autograd's graph leads to from the tensors: a backward must not reach the others' graphs, let
    alone free them. ``before`` are the stages of lower levels of whose backwards these tensors are results, the nearest
    first. ``own`` are those of its tensors that gradients of their own gradients come by.
    """

    level: int
    places: tuple[int, ...]
    attached: tuple[Attached, ...]
    tangents: tuple[Tangent, ...]
    targets: tuple[Target, ...]
    saved: list[Value]
    reached: tuple[int, ...]
    before: tuple[Stage, ...] = ()
    guards: list[codegen.Guard] = dataclasses.field(default_factory=list)
    gradients: dict[Key, list[Gradient]] = dataclasses.field(default_factory=dict)
    traces: dict[Key, BackwardTrace] = dataclasses.field(default_factory=dict)
    backwards: dict[tuple[Key, Trained], Callable[..., Any]] = dataclasses.field(default_factory=dict)
    odd: dict[Any, Tangent] = dataclasses.field(default_factory=dict)  # tangents unlike their results
    held: list[Arg] = dataclasses.field(default_factory=list)  # arguments that gradients hold
    sealed: bool = False  # whether ``held`` may still grow
    own: tuple[int, ...] = ()
    autocast: Autocast = OFF  # what its backwards are traced for
    variants: dict[Autocast, Stage] = dataclasses.field(default_factory=dict)

    def under(self, autocast: Autocast) -> Stage:
        """The stage itself, or where autocast is on a variant with backwards of its own."""
        if autocast == OFF:
            return self
        found = self.variants.get(autocast)
        if found is None:
            found = dataclasses.replace(self, gradients={}, traces={}, backwards={}, variants={}, autocast=autocast)
            found = self.variants.setdefault(autocast, found)
        return found

    @property
    def ends(self) -> list[Any]:
        """The nodes of autograd at which the stage's own graph ends."""
        return [e.node for k in self.reached for e in self.targets[k].edges]

    def tangent(self, part: Any) -> Tangent:
        """The tangent that a part of a key stands for."""
        return self.tangents[part] if type(part) is int else self.odd[part]

    @property
    def of_wrappers(self) -> bool:
        """Whether a result is a wrapper."""
        return any(isinstance(t, Bundle) for t in self.tangents)

    def freeing_nodes(self) -> set[Any]:
        """The nodes between the stage's tensors and its ends that keep what their first backward frees."""
        return {n for a in self.attached for n in nodes_behind_output(a.tensor, self.ends) if holds_saved(n, a.tensor)}

    def shared(self) -> list[tuple[int, ...]]:
        """For each stage of ``before``: the own tensors whose backward comes by nodes of that stage, and frees them.

        See Note [Shared nodes].
        """
        found = []
        for other in self.before:
            theirs = other.freeing_nodes()
            behind = [set(nodes_behind_output(a.tensor, self.ends)) for a in self.attached]
            found.append(tuple(j for j, nodes in enumerate(behind) if nodes & theirs))
        return found

    def wanted(self) -> list[Value | None]:
        """Everything that the backwards traced so far compute."""
        found = values_of(g for gradients in self.gradients.values() for g in gradients)
        for traced in self.traces.values():
            found += [*traced.draws, *[w.after for w in traced.written]]
        return found

    @property
    def cut_nodes(self) -> list[Any]:
        """The nodes of the cuts that the stage hangs on."""
        return [e.node for k in self.reached if self.targets[k].is_cut for e in self.targets[k].edges]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the gradients of the first stages stand in a backward's results: one per input of the forward, as compilers
    expect, and after those the leaves'.
    """

    roots: int
    inputs: int

    def spread(self, level: int, gradients: Sequence[Value | None]) -> list[Value | None]:
        """The results of a backward whose targets have these gradients."""
        if level > 1:
            return list(gradients)
        return [*gradients[: self.roots], *[None] * (self.inputs - self.roots), *gradients[self.roots :]]

    def place(self, level: int, target: int) -> int:
        """Where the gradient of a target stands among them."""
        return target if level > 1 or target < self.roots else target + self.inputs - self.roots


class Backwards:
    """Makes the stages of one specialization and their backwards.

    ``division`` is a user's partition, if there is one; ``forward_names`` are those of the forward's values.
    """

    def __init__(self, capture: Capture, compilers: Compilers, fakes: FakeValues, inputs: Sequence[Value]) -> None:
        self.capture = capture
        self.compilers = compilers
        self.fakes = fakes
        self.inputs = list(inputs)
        self.trace = capture.tracer.trace
        self.layout = Layout(len(capture.roots), len(inputs))
        self.division: Division | None = None
        self.forward_names: dict[Value, str] = {}
        self.live = LiveMemory(capture)
        self.forward: set[Value] = set()  # what the forward computes
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def rearmed(self) -> Iterator[None]:
        """The trace goes on inside."""
        kernels = self.capture.maker.kernels
        with self._lock:
            rearm(kernels)
            try:
                with _torch.without_saved_tensor_hooks(), autocast_off():
                    yield
            finally:
                disarm(kernels)

    # -- stages

    def first(self, forward: set[Value]) -> list[Stage]:
        """The stages of the call's results; ``forward`` is what the forward computes."""
        capture, self.forward = self.capture, forward
        targets = [Target(r.replica, tuple(r.edges)) for r in capture.roots]
        targets += [Target(w.replica, tuple(w.edges)) for w in capture.wrappers]
        targets += [
            Target(x.tensor, tuple(edges)) for x, edges in zip(capture.record.leaves, capture.leaf_edges, strict=True)
        ]
        targets += [Target(a.replica, (a.edge,), is_cut=True) for a in capture.views if a.edge is not None]
        targets += [Target(c.tensor, (c.edge,), is_cut=True) for c in capture.cuts]
        groups = [g.attached for g in capture.record.groups]
        stages = self._stages(1, capture.record.attached, targets, groups)
        while self.live.grew():  # what one stage's backward writes another's may read
            stages = self._stages(1, capture.record.attached, targets, groups)
        forward.update(self.trace.states)  # those that a backward goes back to
        forward.update(
            v for v in self.trace.values if v.op is getitem and v.args[0] in forward
        )  # and of draws repeated
        for stage in stages:
            must = self.live.saved_of([w for traced in stage.traces.values() for w in traced.written])
            forward.update(ancestors(must))
            stage.saved = saved_values(forward, set(self.inputs), stage.wanted(), self.trace.values)
            stage.saved += [v for v in must if v not in stage.saved]
        if self.compilers.partition is None:
            outputs = {o.value for o in capture.record.outputs}
            pack_masks(self.trace, forward, [s.saved for s in stages], outputs)
            for stage in stages:
                stage.saved = list(dict.fromkeys(packed(v, outputs) for v in stage.saved))
        for stage in stages:
            stage.guards = self._guards(stage)
        self.live.settled = True
        return stages

    def _stages(
        self,
        level: int,
        attached: Sequence[Attached],
        targets: Sequence[Target],
        groups: Sequence[Sequence[int]],
        before: tuple[Stage, ...] = (),
    ) -> list[Stage]:
        with autocast_off():  # as most backwards are called; another state has backwards of its own
            return list(self._make_stages(level, attached, targets, groups, before))

    def _make_stages(
        self,
        level: int,
        attached: Sequence[Attached],
        targets: Sequence[Target],
        groups: Sequence[Sequence[int]],
        before: tuple[Stage, ...],
    ) -> Iterator[Stage]:
        tangents = self._tangents_of(attached)
        for group in groups:
            stage = Stage(
                level,
                tuple(group),
                tuple(attached[j] for j in group),
                tuple(tangents[j] for j in group),
                tuple(targets),
                [],
                (),
                before,
            )
            cuts = {e.node for t in targets if t.is_cut for e in t.edges}
            starts = [_torch.grad_fn_of(a.tensor) for a in stage.attached]
            behind = nodes_behind([n for s in starts if s is not None for n, _ in s.next_functions], cuts)
            stage.reached = tuple(k for k, t in enumerate(targets) if any(e.node in behind for e in t.edges))
            stage.own = tuple(
                j for j, a in enumerate(stage.attached) if not is_wrapper(a.tensor) and keeps_itself(a.tensor)
            )
            everything = tuple(range(len(group)))
            if not self._try(stage, everything) and len(group) > 1:
                # Eager's backward from all of them raises too, and will say so when called; saved is what each needs
                # alone.
                for j in everything:
                    self._try(stage, (j,))
            # A backward inside the backward leads past the graph.
            found = {k for gradients in stage.gradients.values() for k, g in enumerate(gradients) if g is not None}
            stage.reached = tuple(sorted(found.union(stage.reached)))
            yield stage

    def _tangents_of(self, attached: Sequence[Attached]) -> list[Tangent]:
        """Inputs of a backward for each of ``attached``."""
        tangents: list[Tangent] = []
        for a in attached:
            if not is_wrapper(a.tensor):
                tangents.append(_placeholder(geometry_of(a.tensor), a.device))
                continue
            with self.capture.tracing(), torch.no_grad():
                like: Any = a.tensor.detach()
                hook = getattr(like, "__coerce_tangent_metadata__", None)
                like = hook() if hook is not None else like
            wrapping = wrapping_of(like)
            if wrapping is None:
                tangents.append(_placeholder(geometry_of(like), a.device))
            else:
                tangents.append(_bundle(wrapping, leaves_of(like), is_jagged(like)))
        for number, t in enumerate(inputs_of(tangents)):
            t.name = f"tangents_{number + 1}"
        return tangents

    def _guards(self, stage: Stage) -> list[codegen.Guard]:
        """What the caller can write of the memory that eager saves: after that the backward raises.

        Where just that memory is saved here too, autograd sees to it.
        """
        capture = self.capture
        visible = [(ref, t) for ref, t in capture.visible if _torch.version_of(t) >= 0]
        counters = [t for _, t in visible]
        copied = capture.recounted() | capture.record.written_placeholders
        kept = {v.memory for v in stage.saved if v.memory is not None} - copied
        saved_here = [r.replica for r in capture.roots if r.placeholder in kept]
        saved_here += [
            o.tensor
            for o in capture.record.outputs
            # What an argument is overwritten with is another tensor than the argument.
            if o.tensor is not None and o.role is not Role.MUTATED_INPUT and o.value in stage.saved
        ]
        # Of several tensors' backwards each looks just at what it uses itself.
        seen_to = set(_torch.counted_by(saved_here, counters)) if len(stage.attached) == 1 else set()
        guards = []
        for place, attached in enumerate(stage.attached):
            try:
                saved = saved_tensors(attached.tensor, stage.ends, packed=False)
            except RuntimeError:  # written inside already: the backward raises at once
                continue
            found = set(_torch.counted_by(saved, counters)) - seen_to
            guards += [codegen.Guard(visible[k][0], place) for k in sorted(k for k in found if k is not None)]
        return guards

    def _try(self, stage: Stage, key: Key) -> bool:
        try:
            self._gradients(stage, key)
        except (UnsupportedError, RetraceWithCaptured):
            raise
        except Exception:
            return False
        return True

    def _gradients(self, stage: Stage, key: Key) -> list[Gradient]:
        """The gradients of the targets if just the tensors ``key`` have tangents; raises what eager's backward does."""
        found = stage.gradients.get(key)
        if found is None:
            traced = self._trace(stage, key, None)
            while self.live.take(traced):
                traced = self._trace(stage, key, None)
            stage.traces[key] = traced
            found = stage.gradients[key] = traced.values
        return found

    def _gradient(self, stage: Stage, key: Key, r: Tensor) -> Gradient:
        wrapping = wrapping_of(r)
        if wrapping is None:
            return self.capture.value_of(r)
        inherited: dict[int, Any] = {
            id(x): InTangent(_place(part), n)
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
            leaves.append(known or self.capture.value_of(x))
        return Bundle(wrapping, tuple(leaves))

    def _trace(self, stage: Stage, key: Key, trained: Trained) -> BackwardTrace:
        seeds = [(stage.attached[_place(part)], stage.tangent(part)) for part in key]
        edges = [t.edges if k in stage.reached else () for k, t in enumerate(stage.targets)]
        live, ends = self.live.contents, stage.cut_nodes
        if trained is not None:
            return self.capture.trace_backward(seeds, edges, [trained[_place(part)] for part in key], ends, live)
        read = functools.partial(self._gradient, stage, key)
        return self.capture.trace_backward(seeds, edges, None, ends, live, read)

    # -- functions

    def function(self, stage: Stage) -> Callable[..., Any]:
        """What attaches the stage's tensors.

        Called with ``(tensors, saved ..., [watched,] contexts, handles), *reached``.
        """
        once = [j for j, a in enumerate(stage.attached) if runs_once(a.tensor, stage.ends)]
        stage.sealed = True
        w = codegen.write_function(
            len(stage.attached),
            len(stage.saved),
            len(stage.reached),
            bool(stage.guards),
            once,
            stage.shared(),
            bool(stage.held),
            stage.level == 1 and self.live.needed,
            stage.own,
        )
        define(w, "forward", "function")
        w.globals["backward_for"] = functools.partial(self.backward_for, stage)
        return _torch.bound_apply(codegen.make_function(w.globals["forward"], w.globals["backward"]))

    def backward_for(self, stage: Stage, kinds: tuple[type, ...], trained: Trained) -> Callable[..., Any]:
        """The backward of ``stage`` for tangents of these types, in the state of autocast that is in force.

        type(None) is the type where there is none.
        """
        stage = stage.under(autocast_state())
        found = stage.backwards.get((kinds, trained))
        if found is None:
            if stage.of_wrappers or any(is_wrapper_type(k) for k in kinds):
                found = functools.partial(self._run_for_wrappers, stage, trained)
            else:
                found = self._backward(stage, tuple(j for j, k in enumerate(kinds) if k is not _NONE), trained)
            stage.backwards[kinds, trained] = found
        return found

    def _run_for_wrappers(self, stage: Stage, trained: Trained, ctx: Any, g: Sequence[Any]) -> Any:
        """Find the backward for tangents some of which are wrappers, or should be, and run it on what they hold."""
        parts: list[Any] = []
        flat: list[Tensor] = []
        whole = list(g)
        for j, t in enumerate(g):
            if t is not None:
                part, whole[j] = self._part(stage, j, t)
                parts.append(part)
                flat += leaves_of(whole[j])
        try:
            run = self._backward(stage, tuple(parts), trained)
        except UnsupportedError as error:
            if any(type(p) is not int for p in parts):
                met = ", ".join(_described(t) for t in g if t is not None)
                wanted = ", ".join(_described(a.tensor) for a in stage.attached)
                raise UnsupportedError("tangent of another type", f"{met} for results {wanted}: {error}") from error
            raise
        return run(ctx, flat, whole)

    def _part(self, stage: Stage, j: int, t: Tensor) -> tuple[Any, Tensor]:
        """The part of a backward's key that the tangent ``t`` of result ``j`` is, and the tangent as it is to be."""
        expected = stage.tangents[j]
        wanted = expected.wrapping if isinstance(expected, Bundle) else None
        found = _wrapping_without_grad(t)
        if _fits(found, wanted):
            return j, t
        changed = coerced(t, wanted)
        if changed is not None and _fits(_wrapping_without_grad(changed), wanted):
            return j, changed
        leaves = leaves_of(t)
        geometries = tuple([(geometry_of(x), x.device) for x in leaves])
        part = (j, None if found is None else found.key, geometries)
        if part not in stage.odd:
            if found is None:
                stage.odd[part] = _placeholder(geometry_of(t), t.device)
            else:
                if is_jagged(t):
                    raise UnsupportedError("tangent of another type", _described(t))
                stage.odd[part] = _bundle(found, leaves, jagged=False)
            for number, value in enumerate(inputs_of([stage.odd[part]])):
                value.name = f"odd_tangents_{len(stage.odd)}_{number + 1}"
        return part, t

    def _backward(self, stage: Stage, key: Key, trained: Trained) -> Callable[..., Any]:
        found = stage.backwards.get((key, trained))
        if found is None:
            with self.rearmed(), autocast_as(stage.autocast):
                found = stage.backwards.get((key, trained))
                if found is None:
                    make = self._plain if trained is None else functools.partial(self._differentiable, trained)
                    found = stage.backwards[key, trained] = make(stage, key)
        return found

    def _plain(self, stage: Stage, key: Key) -> Callable[..., Any]:
        live = inputs_of([stage.tangent(part) for part in key])
        found = self._gradients(stage, key)
        gradients = self.layout.spread(stage.level, [None if isinstance(g, Bundle) else g for g in found])
        wrapped: dict[int, tuple[Wrapping, list[str]]] = {}
        for number, k in enumerate(stage.reached):
            g = found[k]
            if isinstance(g, Bundle):
                wrapped[number] = g.wrapping, self._pick_leaves(stage, key, g, gradients)
        if self.division is not None and stage.level == 1 and len(live) == len(inputs_of(stage.tangents)):
            used = list(range(len(stage.saved)))
            module = self.division.backward
            compiled = compile_module(self.compilers.backward, module, examples(module))
            windows: list[int] = []
            writes: list[codegen.BackwardWrite] = []
            reshaped: list[codegen.BackwardReshape] = []
        else:
            traced = stage.traces[key]
            if stage.level > 1:
                self._refuse_writes(traced)
            results = [*gradients, *[w.after for w in traced.written]]
            must = self.live.saved_of(traced.written)
            graph, used, windows = self._cut(stage, live, results, traced.draws, must)
            compiled = self._compile(stage, graph, used, len(live), windows)
            starts, flat = _starts(stage, key), _is_flat(stage, key)
            places = [starts[_place(part)] if flat else _place(part) for part in key]
            saved = {stage.saved[k]: n for n, k in enumerate(used)}
            writes = self.live.writes(traced, saved, places, len(gradients))
            reshaped = self.live.reshapings(traced)
        w = codegen.write_backward(
            used,
            len(stage.saved),
            _expected(stage, key),
            [self.layout.place(stage.level, k) for k in stage.reached],
            len(gradients),
            wrapped,
            windows,
            writes,
            reshaped,
        )
        run = define(w, "run", "backward")
        # Its graph has the casts.
        w.globals["bw"] = compiled if stage.autocast == OFF else without_autocast(compiled)
        return run

    def _pick_leaves(self, stage: Stage, key: Key, g: Bundle, results: list[Value | None]) -> list[str]:
        """Where a backward finds what the gradient ``g`` holds; its values become further ``results`` of the graph."""
        picked = []
        for x in g.leaves:
            match x:
                case Arg():
                    picked.append(f"ctx.held[{stage.held.index(x)}]")
                case InTangent(place, leaf):
                    picked.append(f"g[{_starts(stage, key)[place] + leaf}]")
                case _:
                    picked.append(f"d[{len(results)}]")
                    results.append(x)
        return picked

    def _refuse_writes(self, traced: BackwardTrace) -> None:
        if traced.written or traced.reshaped:
            raise UnsupportedError("mutation in the backward", "of a backward that is differentiated itself")

    def _cut(
        self,
        stage: Stage,
        live: Sequence[Value],
        results: Sequence[Value | None],
        draws: Sequence[Value] = (),
        must: Sequence[Value] = (),
    ) -> tuple[Graph, list[int], list[int]]:
        """The graph from the stage's saved values, tangents and live memory to ``results``.

        Also which saved values it takes, ``must`` among them, and which windows on live memory. ``draws`` are done
        whether needed or not.
        """
        available = {*stage.saved, *live, *self.live.placeholders}
        keep = backward_values([*results, *draws], available)
        missing = [v for v in (*self.inputs, *self.trace.effects, *self.trace.states) if v in keep]
        missing += [v for v in keep if v.op is PLACEHOLDER and v not in missing]
        if missing:
            raise UnsupportedError("backward needs an unsaved value", f"{missing} for {len(live)} tangents")
        read = {g for g in results if g is not None} | {a for v in keep for a in v.inputs()}
        used = [k for k, v in enumerate(stage.saved) if v in read or v in must]
        windows = [k for k, v in enumerate(self.live.placeholders) if v in read]
        inputs = [stage.saved[k] for k in used] + list(live) + [self.live.placeholders[k] for k in windows]
        order = scheduled(self.trace.values, keep, self.forward)
        return cut("backward", inputs, order, keep, results), used, windows

    def _compile(
        self, stage: Stage, graph: Graph, used: Sequence[int], tangents: int, windows: Sequence[int] = ()
    ) -> Callable[..., Any]:
        names = [self._saved_name(stage.saved[k]) for k in used]
        names += [f"tangents_{number + 1}" for number in range(tangents)]
        names += [f"live_{k + 1}" for k in windows]
        return compile_graph(
            self.compilers.backward, graph, names, self.fakes, self.compilers.decompositions, "backward"
        )

    def _saved_name(self, v: Value) -> str:
        if self.division is not None and v in self.forward_names:
            return self.forward_names[v]
        return str(self.forward_names.get(v, f"saved_{id(v)}"))

    # -- derivatives of backwards

    def _differentiable(self, trained: Trained, stage: Stage, key: Key) -> Callable[..., Any]:
        """The backward whose results have gradients themselves."""
        live = inputs_of([stage.tangent(part) for part in key])
        traced = self._trace(stage, key, trained)
        self._refuse_writes(traced)
        replicas, seeds = traced.gradients, traced.seeds
        # Eager may give a tangent itself for a gradient.
        places = [_place(part) for part in key]
        same = {k: j for k, r in enumerate(replicas) for j, t in zip(places, seeds, strict=True) if r is t}
        replicas = [r if k in same else self.capture.as_result(r) for k, r in enumerate(replicas)]
        gradients = [None if r is None or k in same else self._gradient(stage, key, r) for k, r in enumerate(replicas)]
        values = [None if isinstance(g, Bundle) else g for g in gradients]
        attached = [
            Attached(Result(k), r, r.device)
            for k, r in enumerate(replicas)
            if r is not None and r.requires_grad and k not in same
        ]
        distinct = {a.ref.index for a in attached if isinstance(a.ref, Result)}
        wrapped: dict[int, tuple[Wrapping, list[str]]] = {}
        for k, g in enumerate(gradients):
            if isinstance(g, Bundle):
                first = len(values)
                wrapped[k] = g.wrapping, self._pick_leaves(stage, key, g, values)
                distinct |= set(range(first, len(values))) if k in distinct else set()
        targets = self._next_targets(stage, attached, seeds)
        groups = components([a.tensor for a in attached], [e.node for t in targets for e in t.edges])
        stages = self._stages(stage.level + 1, attached, targets, groups, (stage, *stage.before))
        if any(k < len(stage.targets) and k not in stage.reached for s in stages for k in s.reached):
            raise UnsupportedError("second derivative", "by what the first derivative does not lead to")
        available = set(stage.saved) | set(live)
        computed = backward_values([*values, *traced.draws], available)
        for s in stages:
            s.saved = read_by(s.wanted(), computed | available, self.trace.values)
        results = self._distinct(values, distinct)
        saved = list(dict.fromkeys(v for s in stages for v in s.saved))
        kept = [v for v in saved if v not in available]
        graph, used, windows = self._cut(stage, live, [*results, *kept], traced.draws)
        if windows:
            raise UnsupportedError("mutation in the backward", "of a backward that is differentiated itself")
        compiled = self._compile(stage, graph, used, len(live))
        # What crosses to the next level is saved already, came as a tangent, or is one more result.
        source: dict[Value, str] = {v: f"s[{used.index(k)}]" for k, v in enumerate(stage.saved) if k in used}
        expected = _expected(stage, key)
        source.update({t: f"t{n}" for (n, _, _), t in zip(expected, live, strict=True)})
        source.update({v: f"d[{len(results) + n}]" for n, v in enumerate(kept)})
        unread = [k for k, v in enumerate(stage.saved) if v in saved and k not in used]
        source.update({stage.saved[k]: f"s[{len(used) + n}]" for n, k in enumerate(unread)})
        applications = [
            codegen.Application(
                self.function(s),
                tuple(a.ref.index for a in s.attached if isinstance(a.ref, Result)),
                tuple(source[v] for v in s.saved),
                s.reached,
                any(s.shared()),
                tuple(f"ctx.held[{stage.held.index(x)}]" for x in s.held),
                s.own,
            )
            for s in stages
        ]
        w = codegen.write_differentiable_backward(
            [*used, *unread], len(used), len(stage.saved), expected, stage.reached, applications,
            len(stage.targets), same, places, wrapped, _is_flat(stage, key), stage.own,
        )  # fmt: skip
        run = define(w, "run", "differentiable backward")
        # Its graph has the casts.
        w.globals["bw"] = compiled if stage.autocast == OFF else without_autocast(compiled)
        return run

    def _next_targets(self, stage: Stage, attached: Sequence[Attached], seeds: Sequence[Tensor]) -> list[Target]:
        """The targets of a backward of ``stage``, its tangents, and its own results where gradients come by those.

        A cut that the stage does not hang on is its own result, which its gradients may be computed from: what lies
        behind that is the stage's too.
        """
        reached = reached_leaves([a.tensor for a in attached])
        known = [
            Target(t.tensor, ()) if t.is_cut and k not in stage.reached else t for k, t in enumerate(stage.targets)
        ]
        targets = []
        for t in [*known, *[Target(s, ()) for s in seeds]]:
            more = [e for e in reached.get(id(t.tensor), ()) if e.node not in {x.node for x in t.edges}]
            targets.append(Target(t.tensor, (*t.edges, *more), t.is_cut))
        own = [stage.attached[j].tensor for j in stage.own]
        return targets + [Target(t, (GradientEdge(_torch.grad_fn_of(t), t.output_nr),), is_cut=True) for t in own]

    def _distinct(self, values: Sequence[Value | None], attached: set[int]) -> list[Value | None]:
        """The results of a backward; what is attached is neither an input of it nor another result."""
        seen: set[Value] = set()
        results: list[Value | None] = []
        for k, v in enumerate(values):
            if (
                v is not None
                and k in attached
                and (v in seen or v.op in (PLACEHOLDER, CONSTANT) or v.memory is not None)
            ):
                copy = self.trace.call(aten.clone.default, (v,))
                copy.geometry, copy.device = v.geometry, v.device
                v = copy
            if v is not None:
                seen.add(v)
            results.append(v)
        return results


def _expected(stage: Stage, key: Key) -> list[tuple[int, tuple[int, ...], bool]]:
    """Of each defined tangent which it is, the strides that the graph expects, and whether it is complex."""
    expected = []
    flat = _is_flat(stage, key)
    starts = _starts(stage, key)
    for part in key:
        t = stage.tangent(part)
        first = starts[_place(part)] if flat else _place(part)
        for n, x in enumerate(t.leaves if isinstance(t, Bundle) else (t,)):
            if type(x) is Value:
                g = x.geometry
                assert g is not None
                expected.append((first + n, g.stride, g.dtype.is_complex))
    return expected


_NONE = type(None)


def _is_flat(stage: Stage, key: Key) -> bool:
    """Whether the backward is called with what its tangents are made of."""
    return stage.of_wrappers or any(isinstance(stage.tangent(part), Bundle) for part in key)


def _wrapping_without_grad(t: Tensor) -> Wrapping | None:
    """How the tangent ``t`` is made; that it requires grad, which some contexts say, does not matter."""
    return wrapping_of(t.detach() if is_wrapper(t) and t.requires_grad else t)


def _place(part: Any) -> int:
    place: int = part if type(part) is int else part[0]
    return place


def _starts(stage: Stage, key: Key) -> dict[int, int]:
    """Where among the leaves of all tangents those of each begin."""
    starts, total = {}, 0
    for part in key:
        starts[_place(part)] = total
        t = stage.tangent(part)
        total += len(t.leaves) if isinstance(t, Bundle) else 1
    return starts


def _fits(found: Wrapping | None, wanted: Wrapping | None) -> bool:
    """Whether a tangent like ``found`` can be taken apart as one like ``wanted``."""
    if found is None or wanted is None:
        return found is wanted
    return found.key == wanted.key


def _described(t: Tensor) -> str:
    wrapping = wrapping_of(t)
    return "Tensor" if wrapping is None else f"{wrapping.kind.__name__}({wrapping.context!r})"


def examples(module: fx.GraphModule) -> list[Any]:
    """The example inputs that a compiler is given with ``module``."""
    return [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
