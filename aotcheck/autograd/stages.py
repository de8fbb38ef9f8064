"""Backwards, cut from the trace when they are first needed, and the derivatives of backwards.

Note [Stages]
A stage is what one autograd Function attaches: tensors, what is saved for them, and the targets that their gradients go
to. The first stages attach the results of a call. A backward under ``create_graph`` gives gradients that are themselves
results: they are traced with their own graph, divided and attached by stages of the next level, whose targets are those
of the stage before and, after them, its tangents. So a second derivative is the first derivative of a backward, a third
that of a second, and what each costs in memory is held by the graph of those who asked for it.

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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.capture import Capture
from aotcheck.autograd.compile_graph import Compilers, compile_graph, compile_module
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.graph import FakeValues, Graph, cut, define
from aotcheck.autograd.partition.components import components, nodes_behind, reached_leaves, runs_once, saved_tensors
from aotcheck.autograd.partition.default import backward_values, read_by, saved_values
from aotcheck.autograd.partition.joint import Division
from aotcheck.autograd.record import Attached, Result, Role
from aotcheck.autograd.replicas import Replica, disarm, rearm
from aotcheck.autograd.runtime import codegen
from aotcheck.autograd.trace import CONSTANT, PLACEHOLDER, Geometry, Value, geometry_of

aten = torch.ops.aten
Key = tuple[int, ...]


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


def tangents_of(attached: Sequence[Attached]) -> list[Value]:
    """An input of a backward for each of ``attached``."""
    tangents = []
    for number, a in enumerate(attached):
        t = Value(PLACEHOLDER, (), {})
        t.name, t.device, t.geometry = f"tangents_{number + 1}", a.device, tangent_geometry(geometry_of(a.tensor))
        tangents.append(t)
    return tangents


@dataclasses.dataclass(frozen=True)
class Target:
    """What gradients go to: a replica, and where in autograd's graph they arrive."""

    tensor: Tensor
    edges: tuple[GradientEdge, ...]
    is_cut: bool = False  # a result that others are computed from: see Note [Cuts]


@dataclasses.dataclass
class Stage:
    """Tensors that are backpropagated together: see Note [Stages] and Note [Components].

    ``places`` are those of its tensors among everything attached with them. ``targets`` are all there are,
    ``reached`` those that autograd's graph leads to from the tensors: a backward must not reach the others' graphs, let
    alone free them.
    """

    level: int
    places: tuple[int, ...]
    attached: tuple[Attached, ...]
    tangents: tuple[Value, ...]
    targets: tuple[Target, ...]
    saved: list[Value]
    reached: tuple[int, ...]
    guards: list[codegen.Guard] = dataclasses.field(default_factory=list)
    gradients: dict[Key, list[Value | None]] = dataclasses.field(default_factory=dict)
    backwards: dict[tuple[Key, bool], Callable[..., Any]] = dataclasses.field(default_factory=dict)

    @property
    def ends(self) -> list[Any]:
        """The nodes of autograd at which the stage's own graph ends."""
        return [e.node for k in self.reached for e in self.targets[k].edges]

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
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def rearmed(self) -> Iterator[None]:
        """The trace goes on inside."""
        kernels = self.capture.maker.kernels
        with self._lock:
            rearm(kernels)
            try:
                with _torch.without_saved_tensor_hooks():
                    yield
            finally:
                disarm(kernels)

    # -- stages

    def first(self, forward: set[Value]) -> list[Stage]:
        """The stages of the call's results; ``forward`` is what the forward computes."""
        capture = self.capture
        targets = [Target(r.replica, tuple(r.edges)) for r in capture.roots]
        targets += [
            Target(x.tensor, tuple(edges)) for x, edges in zip(capture.record.leaves, capture.leaf_edges, strict=True)
        ]
        targets += [Target(c.tensor, (c.edge,), is_cut=True) for c in capture.cuts]
        stages = self._stages(1, capture.record.attached, targets, [g.attached for g in capture.record.groups])
        for stage in stages:
            gradients = [g for found in stage.gradients.values() for g in found]
            stage.saved = saved_values(forward, set(self.inputs), gradients, self.trace.values)
            stage.guards = self._guards(stage)
        return stages

    def _stages(
        self,
        level: int,
        attached: Sequence[Attached],
        targets: Sequence[Target],
        groups: Sequence[Sequence[int]],
    ) -> list[Stage]:
        tangents = tangents_of(attached)
        stages = []
        for group in groups:
            stage = Stage(
                level,
                tuple(group),
                tuple(attached[j] for j in group),
                tuple(tangents[j] for j in group),
                tuple(targets),
                [],
                (),
            )
            cuts = {e.node for t in targets if t.is_cut for e in t.edges}
            starts = [_torch.grad_fn_of(a.tensor) for a in stage.attached]
            behind = nodes_behind([n for s in starts if s is not None for n, _ in s.next_functions], cuts)
            stage.reached = tuple(k for k, t in enumerate(targets) if any(e.node in behind for e in t.edges))
            everything = tuple(range(len(group)))
            if not self._try(stage, everything) and len(group) > 1:
                # Eager's backward from all of them raises too, and will say so when called; saved is what each needs
                # alone.
                for j in everything:
                    self._try(stage, (j,))
            stages.append(stage)
        return stages

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
        # What becomes the data of an argument is saved in memory of its own.
        outputs = [o for o in capture.record.outputs if o.value in stage.saved and o.role is not Role.MUTATED_INPUT]
        saved_here += [o.tensor for o in outputs if o.tensor is not None]
        seen_to = set(_torch.counted_by(saved_here, counters))
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
        except UnsupportedError:
            raise
        except Exception:
            return False
        return True

    def _gradients(self, stage: Stage, key: Key) -> list[Value | None]:
        """The gradients of the targets if just the tensors ``key`` have tangents; raises what eager's backward does."""
        found = stage.gradients.get(key)
        if found is None:
            replicas, _ = self._trace(stage, key, create_graph=False)
            found = stage.gradients[key] = [None if r is None else self.capture.value_of(r) for r in replicas]
        return found

    def _trace(self, stage: Stage, key: Key, create_graph: bool) -> tuple[list[Tensor | None], list[Tensor]]:
        seeds = [(stage.attached[j], stage.tangents[j]) for j in key]
        edges = [t.edges if k in stage.reached else () for k, t in enumerate(stage.targets)]
        return self.capture.trace_backward(seeds, edges, create_graph, stage.cut_nodes)

    # -- functions

    def function(self, stage: Stage) -> Callable[..., Any]:
        """What attaches the stage's tensors: called with ``(tensors, saved ..., [watched,] handles), *reached``."""
        once = [j for j, a in enumerate(stage.attached) if runs_once(a.tensor, stage.ends)]
        w = codegen.write_function(len(stage.attached), len(stage.saved), len(stage.reached), bool(stage.guards), once)
        define(w, "forward", "function")
        w.globals["backward_for"] = functools.partial(self.backward_for, stage)
        return _torch.bound_apply(codegen.make_function(w.globals["forward"], w.globals["backward"]))

    def backward_for(self, stage: Stage, defined: tuple[bool, ...], create_graph: bool) -> Callable[..., Any]:
        """The backward of ``stage`` for this set of defined tangents."""
        key = tuple(j for j, d in enumerate(defined) if d)
        found = stage.backwards.get((key, create_graph))
        if found is None:
            with self.rearmed():
                found = stage.backwards.get((key, create_graph))
                if found is None:
                    make = self._differentiable if create_graph else self._plain
                    found = stage.backwards[key, create_graph] = make(stage, key)
        return found

    def _plain(self, stage: Stage, key: Key) -> Callable[..., Any]:
        live = [stage.tangents[j] for j in key]
        if self.division is not None and stage.level == 1 and len(live) == len(stage.tangents):
            used = list(range(len(stage.saved)))
            module = self.division.backward
            compiled = compile_module(self.compilers.backward, module, examples(module))
        else:
            gradients = self.layout.spread(stage.level, self._gradients(stage, key))
            graph, used = self._cut(stage, live, gradients)
            compiled = self._compile(stage, graph, used, len(live))
        w = codegen.write_backward(
            used,
            len(stage.saved),
            _expected(stage, key),
            [self.layout.place(stage.level, k) for k in stage.reached],
            len(self.layout.spread(stage.level, [None] * len(stage.targets))),
        )
        run = define(w, "run", "backward")
        w.globals["bw"] = compiled
        return run

    def _cut(self, stage: Stage, live: Sequence[Value], results: Sequence[Value | None]) -> tuple[Graph, list[int]]:
        """The graph from the stage's saved values and tangents to ``results``, and which saved values it takes."""
        available = set(stage.saved) | set(live)
        keep = backward_values(results, available)
        missing = [v for v in (*self.inputs, *self.trace.effects) if v in keep]
        missing += [v for v in keep if v.op is PLACEHOLDER and v not in missing]
        if missing:
            raise UnsupportedError("backward needs an unsaved value", f"{missing} for {len(live)} tangents")
        read = {g for g in results if g is not None} | {a for v in keep for a in v.inputs()}
        used = [k for k, v in enumerate(stage.saved) if v in read]
        inputs = [stage.saved[k] for k in used] + list(live)
        return cut("backward", inputs, self.trace.values, keep, results), used

    def _compile(self, stage: Stage, graph: Graph, used: Sequence[int], tangents: int) -> Callable[..., Any]:
        names = [self._saved_name(stage.saved[k]) for k in used]
        names += [f"tangents_{number + 1}" for number in range(tangents)]
        return compile_graph(
            self.compilers.backward, graph, names, self.fakes, self.compilers.decompositions, "backward"
        )

    def _saved_name(self, v: Value) -> str:
        if self.division is not None and v in self.forward_names:
            return self.forward_names[v]
        return str(self.forward_names.get(v, f"saved_{id(v)}"))

    # -- derivatives of backwards

    def _differentiable(self, stage: Stage, key: Key) -> Callable[..., Any]:
        """The backward whose results have gradients themselves."""
        live = [stage.tangents[j] for j in key]
        replicas, seeds = self._trace(stage, key, create_graph=True)
        # Eager may give a tangent itself for a gradient.
        same = {k: j for k, r in enumerate(replicas) for j, t in zip(key, seeds, strict=True) if r is t}
        replicas = [r if k in same else self.capture.as_result(r) for k, r in enumerate(replicas)]
        values = [None if r is None else self.capture.value_of(r) for r in replicas]
        attached = [
            Attached(Result(k), r, r.real_device)
            for k, r in enumerate(replicas)
            if isinstance(r, Replica) and r.requires_grad and k not in same
        ]
        targets = self._next_targets(stage, attached, seeds)
        groups = components([a.tensor for a in attached], [e.node for t in targets for e in t.edges])
        stages = self._stages(stage.level + 1, attached, targets, groups)
        if any(k < len(stage.targets) and k not in stage.reached for s in stages for k in s.reached):
            raise UnsupportedError("second derivative", "by what the first derivative does not lead to")
        available = set(stage.saved) | set(live)
        computed = backward_values(values, available)
        for s in stages:
            wanted = [g for found in s.gradients.values() for g in found]
            s.saved = read_by(wanted, computed | available, self.trace.values)
        results = self._distinct(values, {a.ref.index for a in attached if isinstance(a.ref, Result)})
        saved = list(dict.fromkeys(v for s in stages for v in s.saved))
        kept = [v for v in saved if v not in available]
        graph, used = self._cut(stage, live, [*results, *kept])
        compiled = self._compile(stage, graph, used, len(live))
        # What crosses to the next level is saved already, came as a tangent, or is one more result.
        source: dict[Value, str] = {v: f"s[{used.index(k)}]" for k, v in enumerate(stage.saved) if k in used}
        source.update({t: f"t{j}" for j, t in zip(key, live, strict=True)})
        source.update({v: f"d[{len(results) + n}]" for n, v in enumerate(kept)})
        unread = [k for k, v in enumerate(stage.saved) if v in saved and k not in used]
        source.update({stage.saved[k]: f"s[{len(used) + n}]" for n, k in enumerate(unread)})
        applications = [
            codegen.Application(
                self.function(s),
                tuple(a.ref.index for a in s.attached if isinstance(a.ref, Result)),
                tuple(source[v] for v in s.saved),
                s.reached,
            )
            for s in stages
        ]
        w = codegen.write_differentiable_backward(
            [*used, *unread], len(used), len(stage.saved), _expected(stage, key), stage.reached, applications,
            len(stage.targets), same,
        )  # fmt: skip
        run = define(w, "run", "differentiable backward")
        w.globals["bw"] = compiled
        return run

    def _next_targets(self, stage: Stage, attached: Sequence[Attached], seeds: Sequence[Tensor]) -> list[Target]:
        """The targets of a backward of ``stage`` and its tangents.

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
        return targets

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
    for j in key:
        g = stage.tangents[j].geometry
        assert g is not None
        expected.append((j, g.stride, g.dtype.is_complex))
    return expected


def examples(module: fx.GraphModule) -> list[Any]:
    """The example inputs that a compiler is given with ``module``."""
    return [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
