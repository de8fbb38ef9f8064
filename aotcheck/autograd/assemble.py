"""From a capture to something that runs: partition, compilers, and the runtime generated around what they return."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotcheck import _torch
from aotcheck.autograd.backward.backward_graphs import examples
from aotcheck.autograd.backward.backwards import Backwards
from aotcheck.autograd.backward.holding import hold_arguments
from aotcheck.autograd.backward.saved_memory import lies_as, saved_by_views, saved_memory
from aotcheck.autograd.backward.tangents import inputs_of, values_of
from aotcheck.autograd.backward.written_since import guard, written_and_kept
from aotcheck.autograd.calls.containers import ShapeResult
from aotcheck.autograd.effects.capture import Capture
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.graphs.compile_graph import Compilers, compile_graph, compile_module, nop
from aotcheck.autograd.graphs.failing import StrideCorrection
from aotcheck.autograd.graphs.first_run import (
    Restorable,
    laid_out_as,
    learn_strides,
    merged,
    much_the_same,
    run_dead_code,
)
from aotcheck.autograd.graphs.graph import FakeValues, Graph, cut, define
from aotcheck.autograd.ir.trace import CONSTANT, PLACEHOLDER, Geometry, Value, ancestors, getitem
from aotcheck.autograd.ops.twins import DEPENDS_ON_GRAD_MODE, Kind, info_of
from aotcheck.autograd.partition.default import forward_values
from aotcheck.autograd.partition.joint import Division, divide, joint_graph, joint_module, unknown
from aotcheck.autograd.record.steps import Ref, Visibility, Wrap, Write
from aotcheck.autograd.runtime import call_source
from aotcheck.autograd.runtime.attachments import Attachment, HowSaved
from aotcheck.autograd.runtime.backward import under_grad_mode
from aotcheck.autograd.state.global_state import without_autocast
from aotcheck.autograd.tensors.memory import with_layout
from aotcheck.autograd.tensors.subclasses import Bundle

aten = torch.ops.aten


class Assembly:
    """One specialization: its graphs, compiled, and the function that runs them.

    Backwards are cut and compiled when first needed. Where the user brings a partition, all differentiable outputs are
    one component, as a joint graph knows only one backward; a backward for fewer tangents is then cut from what the
    user's forward saves.
    """

    def __init__(self, capture: Capture, compilers: Compilers, shape_result: ShapeResult) -> None:
        self.capture = capture
        self.record = capture.record
        self.compilers = compilers
        self.trace = capture.tracer.trace
        self.kept: list[Value] = []  # writes to inputs that stay in the graph
        if compilers.keep_inference_mutations and not self.record.differentiable and not capture.onward:
            self._keep_mutations()
        self._last = self.trace.values[-1] if self.trace.values else None  # of what the function computed
        self.fakes = FakeValues()
        self.inputs = [r.placeholder for r in capture.roots] + [f.value for f in self.record.flats]
        self.inputs += list(capture.tracer.generators.values())
        self.input_names = [
            f"primals_{k + 1}" if self.record.differentiable else f"arg{k}_1" for k in range(len(self.inputs))
        ]
        for v, name in zip(self.inputs, self.input_names, strict=True):
            v.name = name
        self.outputs = self._distinct_outputs()
        wanted = [*self.outputs, *[v.args[1] for v in self.kept]]
        self.forward = forward_values(self.trace.values, wanted, self.trace.effects)
        self.backwards = Backwards(capture, compilers, self.fakes, self.inputs)
        self.stages = self.backwards.stages.first(self.forward, compilers.partition is None)
        self.saved = list(dict.fromkeys(v for stage in self.stages for v in stage.saved))
        if len(capture.tracer.table.flat_inputs) != len(self.record.flats):
            raise UnsupportedError("backward reads beyond a window", "the backward needs the whole storage of an input")
        self.counting = written_and_kept(capture, self.stages)
        self.division: Division | None = None
        if compilers.partition is not None and self.stages:
            self._divide(compilers.partition)
        else:
            self.forward_graph = self._cut_forward()
            self.backwards.graphs.forward_names = self.forward_graph.named(self.input_names)
        self.call = self._generate(shape_result)

    @property
    def traced_forward(self) -> int:
        """How many of the trace's values came before the backwards."""
        return 0 if self._last is None else self.trace.values.index(self._last) + 1

    # -- graphs

    def _distinct_outputs(self) -> list[Value]:
        """The forward's outputs, values that are neither inputs nor each other: a Function returns no tensor twice."""
        seen: set[Value] = set()
        values = []
        for o in self.record.outputs:
            v = o.value
            if v in seen or v.memory is not None or v.op is CONSTANT:
                v = self._copy(v)
            seen.add(v)
            values.append(v)
        return values

    def _copy(self, v: Value) -> Value:
        # Of sparse tensors aliases are told by identity alone.
        copy = self.trace.call(aten.clone.default if v.sparse is None else aten.detach.default, (v,))
        copy.geometry, copy.sparse, copy.device = v.geometry, v.sparse, v.device
        return copy

    def _keep_mutations(self) -> None:
        """Turn the writes to whole inputs, whose metadata stays, from steps after the graph into final nodes of it."""
        record = self.record
        moved = {getattr(s, "target", None) for s in record.all_steps if not isinstance(s, Write)}
        moved |= {getattr(s, "source", None) for s in record.all_steps}
        roots: dict[Ref, int] = {r.source: k for k, r in enumerate(record.roots)}
        chosen = {
            s.result.index: s
            for s in record.before
            if isinstance(s, Write)
            and s.visibility in (Visibility.VERSION, Visibility.HIDDEN)
            and s.target in roots
            and s.target not in moved
        }
        hidden = set()
        for index, step in chosen.items():
            target = self.capture.roots[roots[step.target]].placeholder
            value = record.outputs[index].value
            if value.memory is not None:  # another final write may come first
                value = self._copy(value)
            copy = Value(aten.copy_.default, (target, value), {})
            copy.geometry, copy.device = target.geometry, target.device
            self.kept.append(copy)
            if step.visibility is Visibility.HIDDEN:
                hidden.add(roots[step.target])
        left = [k for k in range(len(record.outputs)) if k not in chosen]
        dropped = set(map(id, chosen.values()))
        self.record = dataclasses.replace(
            record,
            roots=tuple(dataclasses.replace(r, hidden=k in hidden) for k, r in enumerate(record.roots)),
            before=tuple(s for s in record.before if id(s) not in dropped),
        ).renumber({old: new for new, old in enumerate(left)})

    def _cut_forward(self) -> Graph:
        saved = []
        for v in self.saved:
            if v.memory in self.record.written_placeholders:
                # The epilogue overwrites the memory this value lies in; eager's backward sees it as it was.
                v = self._copy(v)
                self.forward.add(v)
            saved.append(v)
        self.saved_outputs = saved
        title = "forward" if self.record.differentiable else "inference"
        keep = self.forward | set(self.kept)
        return cut(title, self.inputs, [*self.trace.values, *self.kept], keep, [*self.outputs, *saved])

    def _divide(self, partition: Any) -> None:
        """Let the user's partition make forward and backward from a joint graph."""
        (stage,) = self.stages
        everything = tuple(range(len(stage.attached)))
        if everything not in stage.gradients:
            raise UnsupportedError("partition_fn", "no backward takes all tangents: eager's raises")
        traced = stage.traces[everything]
        if traced.written or traced.reshaped:
            raise UnsupportedError("mutation in the backward", "with a partition_fn")
        if traced.brought:
            raise UnsupportedError("backward inside", "one that a backward calls, with a partition_fn")
        found = stage.gradients[everything]
        used = ancestors(values_of(found))
        if any(v in self.trace.drawn and v not in used for v in traced.draws):
            raise UnsupportedError("partition_fn", "the backward draws random numbers that it does not use")
        gradients = self.backwards.graphs.layout.spread(1, [None if isinstance(g, Bundle) else g for g in found])
        gradients += values_of(g for g in found if isinstance(g, Bundle))
        tangents = inputs_of(stage.tangents)
        primals, tables = len(self.inputs), self.compilers.decompositions
        graph = joint_graph(self.inputs, tangents, self.trace.values, self.forward, self.outputs, gradients)
        names = [*self.input_names, *[t.name for t in tangents]]
        joint, examples = joint_module(graph, names, self.fakes, primals, len(self.outputs), tables)
        written = {v.name for v in self.record.written_placeholders}
        self.division = divide(partition, joint, examples, primals, len(self.outputs), written)
        known = {name: v for v, name in graph.named(names).items()} if not tables else {}
        # What no value of ours stands for can only be used by the user's own backward.
        stage.saved = [known.get(name) or unknown(name) for name in self.division.saved]
        self.saved = self.saved_outputs = list(stage.saved)
        guard(self.capture, stage)
        self.backwards.graphs.division = self.division
        self.backwards.graphs.forward_names = dict(zip(stage.saved, self.division.saved, strict=True))

    # -- code

    def _generate(self, shape_result: ShapeResult) -> Callable[[Sequence[Any]], Any]:
        compilers = self.compilers
        compiler = compilers.forward if self.record.differentiable else compilers.inference or compilers.forward
        if self.division is not None:
            compiled = compile_module(compiler, self.division.forward, examples(self.division.forward))
        else:
            compiled = compile_graph(
                compiler,
                self.forward_graph,
                self.input_names,
                self.fakes,
                compilers.decompositions,
                self.forward_graph.title,
            )
        as_traced = self.division is None and not compilers.decompositions
        self.interpreted = (compiler is None or compiler is nop) and as_traced
        self._shape_result = shape_result
        self._compiled = without_autocast(compiled) if self.capture.entry_autocast else compiled
        if self.record.differentiable and any(v.op in DEPENDS_ON_GRAD_MODE for v in self.forward):
            self._compiled = under_grad_mode(self._compiled)
        self._link({}, frozenset())
        self._namespace["fw"] = self._first_run
        return self.call

    def _link(self, wrong: dict[int, Geometry], shared: frozenset[int]) -> None:
        """Generate the code around the compiled forward; ``wrong`` are outputs whose layout has to be set right.

        ``shared`` are those, and saved values, that are to be copied.
        """
        record = self.record
        attachments = []
        functions: dict[str, Any] = {}
        index = {v: k for k, v in enumerate(self.saved)}
        # What is unpacked by itself may be no output of the Function that saves it.
        alone = any(len(s.attached) > 1 or len(s.checked_by_backward) < len(s.saved) or s.cover for s in self.stages)
        fresh_saved = [self._is_fresh(v) and not (alone and v in self.outputs) for v in self.saved_outputs]
        views = saved_by_views(self.capture, self.stages, self.saved_outputs)
        by_views = frozenset(k for k, v in enumerate(self.saved_outputs) if v in views)
        live = self.backwards.stages.live
        moved = self.capture.recounted if self.saved else set()
        aliases = frozenset(k for k, v in enumerate(self.saved_outputs) if v.memory in moved and v.memory is not None)
        memory = saved_memory(self.capture, self.stages, self.saved) if self.division is None else {}
        how = HowSaved(aliases, memory, by_views, self._relaid(wrong))
        if record.swapped:
            hold_arguments(self.capture, self.stages, self.saved_outputs, index, how)
        for number, stage in enumerate(self.stages):
            function = self.backwards.function(stage)
            functions[f"apply{number}"], functions[f"finder{number}"] = function.apply, function.finder
            saved = tuple(index[v] for v in stage.saved)
            guards, held = tuple(stage.guards), tuple(stage.held)
            unwatched, loose = frozenset[int](), frozenset[int]()
            if not stage.lasting:  # else eager's backward reads the very tensor
                unwatched = frozenset(index[v] for v in stage.unwatched)
                loose = frozenset(index[stage.saved[n]] for n in stage.arguments.loose)
            attachments.append(
                Attachment(
                    stage.places,
                    saved,
                    stage.reached,
                    guards,
                    held,
                    live.windows,
                    live.reshaped,
                    stage.own,
                    function.selective,
                    unwatched,
                    tuple(ref for ref, _ in stage.views),
                    stage.cover or (),
                    stage.entered,
                    loose,
                    stage.arguments.holders,
                )
            )
        fresh = [self._is_fresh(v) for v in self.outputs] + fresh_saved
        random = bool(self.trace.effects)
        w = call_source.write_call(
            record, attachments, wrong, fresh, self._shape_result, random, how, shared, self.capture.hooks_called > 0
        )
        w.globals.update(functions)
        w.globals["fw"] = self._compiled
        self.code, self._namespace = w, w.globals
        self.call = define(w, "call", "call")

    def _relaid(self, wrong: dict[int, Geometry]) -> dict[int, int]:
        """By place, saved values that are outputs whose layout is set right: what the caller writes is to show in them.

        That is the layout that the backward expects of them.
        """
        places = {self.outputs[k]: k for k, g in wrong.items() if lies_as(self.outputs[k], g)}
        return {j: places[v] for j, v in enumerate(self.saved_outputs) if v in places} if places else {}

    def _is_fresh(self, v: Value) -> bool:
        if v.op is PLACEHOLDER:
            return True
        if not self.interpreted or v.memory is not None:
            return False
        op = v.args[0].op if v.op is getitem else v.op
        return isinstance(op, _torch.OpOverload) and info_of(op).kind is Kind.PURE and info_of(op).cacheable

    def _first_run(self, *args: Any) -> Any:
        """The forward's first run: see Note [First run]."""
        with self.backwards.alone():
            return self._run_and_check(args)

    def _run_and_check(self, args: Sequence[Any]) -> Any:
        written = [args[self.inputs.index(v.args[0])] for v in self.kept]
        generators = [a for a in args if isinstance(a, torch.Generator)]
        before = Restorable(bool(self.trace.effects), generators, written)
        try:
            if run_dead_code(self.trace.values[: self.traced_forward], self.inputs, self.forward, args):
                before.restore()
            results = self._compiled(*args)
        except Exception:
            before.restore()
            if self.interpreted and self._learn_strides(args, before):
                raise StrideCorrection from None
            raise
        shared = frozenset() if self.interpreted else merged(results, args, self.outputs, self.saved_outputs)
        results = _copied(results, shared)
        wrong = [k for k in range(len(self.outputs)) if not laid_out_as(results[k], self.record.outputs[k])]
        # Strides of empty tensors show only in the offsets of what is cut from them: settle them before anyone sees.
        cut = self.capture.meets_empty_views
        empty = self.interpreted and (
            cut or any(v.geometry is not None and 0 in v.geometry.shape for v in self.trace.values)
        )
        geometries = {k: g for k in wrong if (g := self.record.outputs[k].geometry) is not None}
        if wrong or empty:
            before.restore()
            if self._learn_strides(args, before):
                raise StrideCorrection
            results = _copied(self._compiled(*args), shared)
        if wrong or shared:
            # So do those of one element. Classes of wrappers may hold strides against each other that no op looks at.
            exact = cut or empty or any(isinstance(step, Wrap) for step in self.record.all_steps)
            layouts = {k: g for k, g in geometries.items() if exact or not much_the_same(results[k], g)}
            with self.backwards.rearmed():
                self._link(layouts, shared)
            results = list(results)
            for k, g in layouts.items():
                results[k] = with_layout(results[k], g)
            for j, k in self._relaid(layouts).items():
                results[len(self.outputs) + j] = results[k]
        self._namespace["fw"] = self._compiled
        return results

    def _learn_strides(self, args: Sequence[Any], before: Restorable) -> bool:
        try:
            return learn_strides(self.forward_graph, self.capture.tracer.keys, args)
        finally:
            before.restore()


def _copied(results: Sequence[Any], which: frozenset[int]) -> Sequence[Any]:
    """``results``, ``which`` of them copied."""
    return [t.clone() if k in which else t for k, t in enumerate(results)] if which else results


__all__ = ["Assembly", "StrideCorrection"]
