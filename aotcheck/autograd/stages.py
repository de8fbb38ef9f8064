"""Backwards, cut from the trace when they are first needed: see Note [Stages]."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from aotcheck import _torch
from aotcheck.autograd.autocast import OFF, autocast_as, autocast_state
from aotcheck.autograd.beyond import noting_gradients, values_beyond
from aotcheck.autograd.capture import Capture
from aotcheck.autograd.compile_graph import Compilers, compile_graph, compile_module
from aotcheck.autograd.derivatives import differentiable, refuse_writes
from aotcheck.autograd.errors import RetraceWithCaptured, UnsupportedError
from aotcheck.autograd.formulas import depends_on_data, question
from aotcheck.autograd.global_state import autocast_is_on, autocast_off, without_autocast
from aotcheck.autograd.graph import FakeValues, Graph, cut, define, interpreter
from aotcheck.autograd.kept import kept_behind, objection_to_write, self_kept_in
from aotcheck.autograd.live import LiveMemory
from aotcheck.autograd.partition.components import edges_behind, nodes_behind
from aotcheck.autograd.partition.default import backward_values, saved_values, scheduled
from aotcheck.autograd.partition.joint import Division
from aotcheck.autograd.partition.masks import pack_masks, packed
from aotcheck.autograd.partition.saved import holds_saved, keeps_itself, nodes_behind_output, objection, runs_once
from aotcheck.autograd.record import Attached
from aotcheck.autograd.replicas import Replica, disarm, rearm
from aotcheck.autograd.runtime import backward_source
from aotcheck.autograd.runtime.attachments import HELD, BackwardReshape, BackwardWrite, Function
from aotcheck.autograd.sandbox import BackwardTrace
from aotcheck.autograd.sparse_geometry import is_sparse
from aotcheck.autograd.stage import Layout, Stage, Target
from aotcheck.autograd.steps import Arg, Ref
from aotcheck.autograd.subclasses import (
    Bundle,
    Wrapping,
    is_wrapper,
    is_wrapper_type,
    leaves_of,
    wrapping_of,
)
from aotcheck.autograd.tangents import (
    Gradient,
    InTangent,
    Key,
    Trained,
    described,
    inputs_of,
    place_of,
    tangents_of,
)
from aotcheck.autograd.trace import PLACEHOLDER, Value, ancestors, getitem
from aotcheck.autograd.written_since import guard

aten = torch.ops.aten


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
        self._written_views: list[tuple[Ref, Tensor, Any]] | None = None  # and the history of each write
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """One thread at a time is inside, and nothing that the caller has in force."""
        with (
            self._lock,
            _torch.without_saved_tensor_hooks(),
            _torch.without_compiled_autograd(),
            autocast_off(),
        ):
            yield

    @contextlib.contextmanager
    def rearmed(self) -> Iterator[None]:
        """The trace goes on inside."""
        kernels = self.capture.maker.kernels
        with self.alone():
            rearm(kernels)
            try:
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
        first_cut = len(targets) - len(capture.cuts)
        groups = []
        for group in capture.record.groups:
            inside = {first_cut + k for k in group.inside}
            groups.append((group.attached, [Target(t.tensor, ()) if k in inside else t for k, t in enumerate(targets)]))
        stages = self.stages_of(1, capture.record.attached, groups)
        while self.live.grew():  # what one stage's backward writes another's may read
            stages = self.stages_of(1, capture.record.attached, groups)
        forward.update(self.trace.states)  # those that a backward goes back to
        forward.update(
            v for v in self.trace.values if v.op is getitem and v.args[0] in forward
        )  # and of draws repeated
        forward.update(ancestors(v for stage in stages for v in self._kept_values(stage)))
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
            guard(self.capture, stage)
        self.live.settled = True
        return stages

    def _kept_values(self, stage: Stage) -> Iterator[Value]:
        """What the tensors hold that eager's graph keeps, as far as the stage's backwards read that.

        The forward has it, though it may not need it itself where it was written past autograd: to compute it later
        would be to read what else the caller may have written by then.
        """
        wanted = ancestors(stage.wanted())
        for t in {id(t): t for kept in kept_behind(self.capture, stage) for t in kept or ()}.values():
            plain = type(t) in (Replica, Tensor) and not is_sparse(t)
            view = self.capture.tracer.table.known_view(t) if plain else None
            if view is not None and view.fits and view.value in wanted and view.value.op is not PLACEHOLDER:
                yield view.value

    def stages_of(
        self,
        level: int,
        attached: Sequence[Attached],
        groups: Sequence[tuple[Sequence[int], Sequence[Target]]],
        before: tuple[Stage, ...] = (),
    ) -> list[Stage]:
        """The stages that attach ``attached``, one for each of ``groups``: places, and all targets as it sees them.

        ``before`` as in ``Stage``.
        """
        with autocast_off():  # as most backwards are called; another state has backwards of its own
            return list(self._make_stages(level, attached, groups, before))

    def _make_stages(
        self,
        level: int,
        attached: Sequence[Attached],
        groups: Sequence[tuple[Sequence[int], Sequence[Target]]],
        before: tuple[Stage, ...],
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
            )
            cuts = {e.node for t in targets if t.is_cut for e in t.edges}
            starts = [_torch.grad_fn_of(a.tensor) for a in stage.attached]
            behind = edges_behind([s for s in starts if s is not None], cuts)
            stage.reached = tuple(
                k for k, t in enumerate(targets) if any((e.node, e.output_nr) in behind for e in t.edges)
            )
            stage.own = tuple(
                j for j, a in enumerate(stage.attached) if not is_wrapper(a.tensor) and keeps_itself(a.tensor)
            )
            if level == 1:
                self._find_views(stage)
                nodes = {n: None for a in stage.attached for n in nodes_behind_output(a.tensor, stage.ends)}
                stage.asks = tuple([n for n in nodes if depends_on_data(n)])
            else:
                stage.answers = before[0].answers
            everything = tuple(range(len(group)))
            with noting_gradients({*starts, *[n for n, _ in behind]}) as given:
                if not self._try(stage, everything) and len(group) > 1:
                    # Eager's backward from all of them raises too, and will say so when called; saved is what each
                    # needs alone.
                    for j in everything:
                        self._try(stage, (j,))
            stage.beyond = values_beyond(self.capture, stage, given, self.live.contents)
            # A backward inside the backward leads past the graph.
            found = {k for gradients in stage.gradients.values() for k, g in enumerate(gradients) if g is not None}
            stage.reached = tuple(sorted(found.union(stage.reached)))
            yield stage

    def _find_views(self, stage: Stage) -> None:
        """The views that ops behind the stage's tensors wrote and keep: see Note [Results of their own gradients]."""
        if self._written_views is None:
            self._written_views = [(*x, w) for x in self.capture.visible if (w := self_kept_in(self.capture, x[1]))]
        if self._written_views:
            places = {id(a.tensor): j for j, a in enumerate(stage.attached)}
            behind = {n for a in stage.attached for n in nodes_behind_output(a.tensor, stage.ends)}
            found = {id(t): (ref, t) for ref, t, write in self._written_views if write in behind}
            stage.own = tuple(sorted({*stage.own, *[places[k] for k in found if k in places]}))
            stage.views = tuple([x for k, x in found.items() if k not in places])

    def _try(self, stage: Stage, key: Key) -> bool:
        try:
            self._gradients(stage, key)
        except (UnsupportedError, RetraceWithCaptured):
            raise
        except Exception:
            if stage.asked is None and len(stage.reached) > 1:  # what some backward needs that leaves out what raises
                for k in stage.reached:
                    self._try(stage.only(frozenset({k})), key)
            return False
        return True

    def _gradients(self, stage: Stage, key: Key) -> list[Gradient]:
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
        edges = [t.edges if k in stage.traced_for else () for k, t in enumerate(stage.targets)]
        trace = functools.partial(self.capture.backward.trace, answers=stage.answers)
        live, ends = self.live.contents, stage.cut_nodes
        if trained is not None:
            return trace(seeds, edges, [trained[place_of(part)] for part in key], ends, live)
        return trace(seeds, edges, None, ends, live, functools.partial(self.gradient, stage, key))

    # -- functions

    def function(self, stage: Stage) -> Function:
        """What attaches the stage's tensors."""
        once = tuple([j for j, a in enumerate(stage.attached) if runs_once(a.tensor, stage.ends)])
        stage.sealed = True
        freeing = [j for j in once if holds_saved(_torch.grad_fn_of(t := stage.attached[j].tensor), t)]
        raising = tuple(_raising(stage))
        apply = backward_source.function_like(
            len(stage.attached),
            len(stage.saved),
            len(stage.reached),
            bool(stage.guards),
            tuple(stage.checked) if len(stage.attached) > 1 else (),
            once,
            tuple([(j, self._objection(stage, j)) for j in freeing]),
            tuple(stage.shared()),
            stage.own,
            raising,
            stage.leads(),
            stage.mates(),
            bool(stage.views),
        )
        return Function(apply, functools.partial(self.backward_for, stage), bool(raising))

    def _objection(self, stage: Stage, j: int) -> str | None:
        """What the op that gave a tensor raises in its backward because what it keeps was written since."""
        t = stage.attached[j].tensor
        node = _torch.grad_fn_of(t)
        return objection_to_write(self.capture, node) if _torch.is_write_through_view(node) else objection(node, t)

    def backward_for(self, stage: Stage, kinds: tuple[type, ...], trained: Trained) -> Callable[..., Any]:
        """The backward of ``stage`` for tangents of these types, in the state of autocast that is in force.

        type(None) is the type where there is none, its layout that of a sparse tensor.
        """
        if stage.asks and self.division is None:
            return functools.partial(self._run_for_data, stage, kinds, trained)
        if autocast_is_on():
            stage = stage.under(autocast_state())
        found = stage.backwards.get((kinds, trained))
        if found is None:
            if stage.of_other_kinds or any(isinstance(k, torch.layout) or is_wrapper_type(k) for k in kinds):
                found = functools.partial(self._run_for_kinds, stage, trained)
            else:
                key = tuple(j for j, k in enumerate(kinds) if k is not _NONE)
                try:
                    found = self._backward(stage, key, trained)
                except UnsupportedError:
                    raise
                except RuntimeError as error:
                    return functools.partial(self._run_for_asked, stage, key, trained, error)
            stage.backwards[kinds, trained] = found
        return found

    def _run_for_data(self, stage: Stage, kinds: tuple[type, ...], trained: Trained, ctx: Any, g: Sequence[Any]) -> Any:
        """Run the backward that is right for the data: see Note [Formulas for data]."""
        if stage.ask is None:
            with self.rearmed():
                stage.ask = self._question(stage)
        return self.backward_for(stage.answered(stage.ask(ctx)), kinds, trained)(ctx, g)

    def _question(self, stage: Stage) -> Callable[[Any], tuple[bool, ...]]:
        """What says, of a context of the stage's Function, which formulas are to be taken."""
        with self.capture.tracer.recording(), torch.no_grad():
            values = [self.capture.tracer.table.read(question(node)) for node in stage.asks]
        graph, used, windows = self.cut(stage, (), values)
        if windows:
            raise UnsupportedError("mutation in the backward", "of what says by which formula it is to be")
        run = interpreter(graph)

        def ask(ctx: Any) -> tuple[bool, ...]:
            whole = len(stage.checked_by_backward) == len(stage.saved)
            saved = [ctx.saved_tensors[k] for k in used] if whole else _torch.unpack_some(ctx, used)
            with torch.no_grad():
                return tuple(map(bool, run(*saved)))

        return ask

    def _run_for_asked(
        self, stage: Stage, key: Key, trained: Trained, error: RuntimeError, ctx: Any, g: Sequence[Any]
    ) -> Any:
        """Run a backward that raised ``error`` when it was traced for all targets: only for those asked for now.

        The engine comes to a Function wherever one of its inputs is asked for; what leads to the others it leaves out,
        and so what would raise there.
        """
        with self.rearmed():
            starts = [_torch.grad_fn_of(a.tensor) for a, t in zip(stage.attached, g, strict=True) if t is not None]
            behind = nodes_behind(starts, set(stage.ends))
        asked = {
            k: node is not None and _torch.will_run(node)
            for k, (node, _) in zip(stage.reached, ctx.next_functions, strict=False)
            if any(e.node in behind for e in stage.targets[k].edges)
        }
        if stage.asked is not None or all(asked.values()) or self.division is not None:
            raise error
        if not any(asked.values()):
            return (None,) * (1 + max(1, len(stage.reached)))
        return self._backward(stage.only(frozenset(k for k, now in asked.items() if now)), key, trained)(ctx, g)

    def _run_for_kinds(self, stage: Stage, trained: Trained, ctx: Any, g: Sequence[Any]) -> Any:
        """Find the backward for tangents some of which are wrappers or sparse, or should be.

        It is run on what the wrappers hold.
        """
        parts: list[Any] = []
        flat: list[Tensor] = []
        whole = list(g)
        for j, t in enumerate(g):
            if t is not None:
                part, whole[j] = stage.part(j, t)
                parts.append(part)
                flat += leaves_of(whole[j])
        try:
            run = self._backward(stage, tuple(parts), trained)
        except UnsupportedError as error:
            if any(type(p) is not int for p in parts):
                met = ", ".join(described(t) for t in g if t is not None)
                wanted = ", ".join(described(a.tensor) for a in stage.attached)
                raise UnsupportedError("tangent of another type", f"{met} for results {wanted}: {error}") from error
            raise
        return run(ctx, flat, whole)

    def _backward(self, stage: Stage, key: Key, trained: Trained) -> Callable[..., Any]:
        found = stage.backwards.get((key, trained))
        if found is None:
            with self.rearmed(), autocast_as(stage.autocast):
                found = stage.backwards.get((key, trained))
                if found is None:
                    found = self._plain(stage, key) if trained is None else self._differentiable(stage, key, trained)
                    stage.backwards[key, trained] = found
        return found

    def _differentiable(self, stage: Stage, key: Key, trained: Trained) -> Callable[..., Any]:
        capture = self.capture
        attached = [a.tensor for a in capture.record.attached]
        capture.ended.lose_histories([*attached, *[c.tensor for c in capture.cuts], *[t for _, t in capture.visible]])
        return differentiable(self, stage, key, trained)

    def _plain(self, stage: Stage, key: Key) -> Callable[..., Any]:
        live = inputs_of([stage.tangent(part) for part in key])
        found = self._gradients(stage, key)
        starts, flat = stage.starts(key), stage.is_flat(key)
        places = [starts[place_of(part)] if flat else place_of(part) for part in key]
        tangents = {id(stage.tangent(part)): place for part, place in zip(key, places, strict=True)}
        same = {n: tangents[id(found[k])] for n, k in enumerate(stage.reached) if id(found[k]) in tangents}
        gradients = self.layout.spread(stage.level, [None if isinstance(g, Bundle) else g for g in found])
        wrapped: dict[int, tuple[Wrapping, list[str]]] = {}
        for number, k in enumerate(stage.reached):
            g = found[k]
            if isinstance(g, Bundle):
                wrapped[number] = g.wrapping, self.pick_leaves(stage, key, g, gradients)
        if self.division is not None and stage.level == 1 and len(live) == len(inputs_of(stage.tangents)):
            used = list(range(len(stage.saved)))
            module = self.division.backward
            compiled = compile_module(self.compilers.backward, module, examples(module))
            windows: list[int] = []
            writes: list[BackwardWrite] = []
            reshaped: list[BackwardReshape] = []
        else:
            traced = stage.traces[key]
            if stage.level > 1:
                refuse_writes(traced)
            results = [*gradients, *[w.after for w in traced.written]]
            must = self.live.saved_of(traced.written)
            graph, used, windows = self.cut(stage, live, results, traced.draws, must)
            compiled = self.compile(stage, graph, used, len(live), windows)
            saved = {stage.saved[k]: n for n, k in enumerate(used)}
            writes = self.live.writes(traced, saved, places, len(gradients))
            reshaped = self.live.reshapings(traced)
        w = backward_source.write_backward(
            used,
            len(stage.saved),
            stage.expected(key),
            [self.layout.place(stage.level, k) for k in stage.reached],
            len(gradients),
            wrapped,
            same,
            windows,
            writes,
            reshaped,
            [k for k in stage.checked_by_backward if k not in used],
        )
        run = define(w, "run", "backward")
        # Its graph has the casts.
        w.globals["bw"] = compiled if stage.autocast == OFF else without_autocast(compiled)
        return run

    def pick_leaves(self, stage: Stage, key: Key, g: Bundle, results: list[Value | None]) -> list[str]:
        """Where a backward finds what the gradient ``g`` holds; its values become further ``results`` of the graph."""
        picked = []
        for x in g.leaves:
            match x:
                case Arg():
                    picked.append(f"{HELD}[{stage.held.index(x)}]")
                case InTangent(place, leaf):
                    picked.append(f"g[{stage.starts(key)[place] + leaf}]")
                case _:
                    picked.append(f"d[{len(results)}]")
                    results.append(x)
        return picked

    def cut(
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

    def compile(
        self, stage: Stage, graph: Graph, used: Sequence[int], tangents: int, windows: Sequence[int] = ()
    ) -> Callable[..., Any]:
        """A backward's graph as a callable; its inputs are as ``cut`` has them."""
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


def _raising(stage: Stage) -> Iterator[tuple[int, str]]:
    """The tensors behind which a node is there to raise, and what: see ``backward.raise_if_all_runs``."""
    for j, attached in enumerate(stage.attached):
        for node in nodes_behind_output(attached.tensor, stage.ends):
            error = _torch.error_of(node)
            if error is not None:
                yield j, error
                break


_NONE = type(None)


def examples(module: fx.GraphModule) -> list[Any]:
    """The example inputs that a compiler is given with ``module``."""
    return [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
