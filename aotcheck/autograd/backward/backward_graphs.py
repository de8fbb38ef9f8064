"""Graphs of backwards, cut from the trace between saved values and gradients, and compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aotcheck import _torch
from aotcheck.autograd.backward.derivatives import bringings, refuse_writes
from aotcheck.autograd.backward.stage import Layout, Stage
from aotcheck.autograd.backward.stages import Stages
from aotcheck.autograd.backward.tangents import InTangent, Key, inputs_of, place_of, values_of
from aotcheck.autograd.eager_graph.formulas import question
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.graphs.compile_graph import Compilers, compile_graph, compile_module
from aotcheck.autograd.graphs.graph import FakeValues, Graph, cut, define, interpreter
from aotcheck.autograd.ir.trace import PLACEHOLDER, Value
from aotcheck.autograd.partition.default import backward_values, scheduled
from aotcheck.autograd.partition.joint import Division
from aotcheck.autograd.record.steps import Arg
from aotcheck.autograd.runtime import backward_source
from aotcheck.autograd.runtime.attachments import HELD, BackwardReshape, BackwardWrite, Bringing
from aotcheck.autograd.state.autocast import OFF
from aotcheck.autograd.state.global_state import without_autocast
from aotcheck.autograd.tensors.subclasses import Bundle, Wrapping


class BackwardGraphs:
    """Cuts and compiles the backwards of one specialization's stages.

    ``division`` is a user's partition, if there is one; ``forward_names`` are those of the forward's values.
    """

    def __init__(self, stages: Stages, compilers: Compilers, fakes: FakeValues) -> None:
        self.stages = stages
        self.compilers = compilers
        self.fakes = fakes
        self.trace = stages.trace
        self.live = stages.live
        self.layout = Layout(len(stages.capture.roots), len(stages.inputs))
        self.division: Division | None = None
        self.forward_names: dict[Value, str] = {}

    def backward(self, stage: Stage, key: Key) -> Callable[..., Any]:
        """The backward of ``stage`` for the tangents ``key``, whose results have no gradients themselves."""
        live = inputs_of([stage.tangent(part) for part in key])
        found = self.stages.gradients(stage, key)
        starts, flat = stage.starts(key), stage.is_flat(key)
        places = [starts[place_of(part)] if flat else place_of(part) for part in key]
        tangents = {id(stage.tangent(part)): place for part, place in zip(key, places, strict=True)}
        same = {n: tangents[id(found[k])] for n, k in enumerate(stage.reached) if id(found[k]) in tangents}
        traced = stage.traces[key]
        seeds = set(map(id, traced.seeds))
        shown = {n for n in same if id(traced.gradients[stage.reached[n]]) not in seeds}
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
            brought: list[Bringing] = []
        else:
            if stage.level > 1:
                refuse_writes(traced)
            results = [*gradients, *[w.after for w in traced.written], *values_of(b.read for b in traced.brought)]
            must = self.live.saved_of(traced.written)
            graph, used, windows = self.cut(stage, live, results, traced.draws, must)
            compiled = self.compile(stage, graph, used, len(live), windows)
            saved = {stage.saved[k]: n for n, k in enumerate(used)}
            writes = self.live.writes(traced, saved, places, len(gradients))
            reshaped = self.live.reshapings(traced)
            brought = bringings(stage, traced, len(results))
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
            shown,
            stage.is_once,
            stage.lasting,
            brought,
        )
        run = define(w, "run", "backward")
        # Its graph has the casts.
        w.globals["bw"] = compiled if stage.autocast == OFF else without_autocast(compiled)
        return run

    def question(self, stage: Stage) -> Callable[[Any], tuple[bool, ...]]:
        """What says, of a context of the stage's Function, which formulas are to be taken.

        A node that nothing is saved for has no part in any gradient: its formula may be either.
        """
        tracer = self.stages.capture.tracer
        with tracer.recording(), torch.no_grad():
            asked = [tracer.table.read(question(node)) for node in stage.asks]
        values = [None if self._needed(stage, (), [v])[1] else v for v in asked]
        graph, used, windows = self.cut(stage, (), values)
        if windows:
            raise UnsupportedError("mutation in the backward", "of what says by which formula it is to be")
        run = interpreter(graph)

        def ask(ctx: Any) -> tuple[bool, ...]:
            whole = len(stage.checked_by_backward) == len(stage.saved)
            if stage.lasting or whole:
                there = ctx.lasting if stage.lasting else ctx.saved_tensors
                saved = [there[k] for k in used]
            else:
                saved = list(_torch.unpack_some(ctx, used))
            with torch.no_grad():
                return tuple(map(bool, run(*saved)))

        return ask

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
        keep, missing = self._needed(stage, live, [*results, *draws])
        if missing:
            raise UnsupportedError("backward needs an unsaved value", f"{missing} for {len(live)} tangents")
        read = {g for g in results if g is not None} | {a for v in keep for a in v.inputs()}
        used = [k for k, v in enumerate(stage.saved) if v in read or v in must]
        windows = [k for k, v in enumerate(self.live.placeholders) if v in read]
        if windows and stage.level > 1:
            raise UnsupportedError("mutation in the backward", "of what derivatives of it read")
        inputs = [stage.saved[k] for k in used] + list(live) + [self.live.placeholders[k] for k in windows]
        order = scheduled(self.trace.values, keep, self.stages.forward)
        return cut("backward", inputs, order, keep, results), used, windows

    def _needed(
        self, stage: Stage, live: Sequence[Value], wanted: Sequence[Value | None]
    ) -> tuple[set[Value], list[Value]]:
        """What ``wanted`` is computed of behind what the stage saves and ``live``, and what of it only a call has."""
        keep = backward_values(wanted, {*stage.saved, *live, *self.live.placeholders})
        missing = [v for v in (*self.stages.inputs, *self.trace.effects, *self.trace.states) if v in keep]
        return keep, missing + [v for v in keep if v.op is PLACEHOLDER and v not in missing]

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


def examples(module: fx.GraphModule) -> list[Any]:
    """The example inputs that a compiler is given with ``module``."""
    return [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
