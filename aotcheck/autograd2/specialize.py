"""One compilation: bind, trace, analyze, joint, partition, compile, emit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.analyze.analysis import Analysis, analyze, more_needs
from aotcheck.autograd2.config import count, log, python_of
from aotcheck.autograd2.errors import UnsupportedError
from aotcheck.autograd2.frontend.bind import Bound
from aotcheck.autograd2.ir.graph import PLACEHOLDER, Node, symbols_of
from aotcheck.autograd2.ir.signature import Alias, BaseOf, Fresh, Given, Made, MadeLeaf, Mutation, Signature
from aotcheck.autograd2.ir.size import Dynamic
from aotcheck.autograd2.joint import joint
from aotcheck.autograd2.joint.regions import Held, Order, Region, regions
from aotcheck.autograd2.partition import BackwardGraph, Partition, cut_backward, joint_module, partition, saved_by
from aotcheck.autograd2.runtime.compile import Compilers, compile_backward, compile_forward, nop, run_once, unused
from aotcheck.autograd2.runtime.emit import Attachment, Call, emit
from aotcheck.autograd2.runtime.function import Ready, Runner
from aotcheck.autograd2.runtime.source import Modes, Symbolic
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.replica import Needs, disarm, rearm, state_of
from aotcheck.autograd2.trace.run import Traced, UserError, trace

_RNN = torch.ops.aten.mkldnn_rnn_layer.default
"""Its kernel gives what a backward needs only where grad mode is on."""
_LOST_ONCE_WRITTEN = {_torch.CreationMeta.IN_CUSTOM_FUNCTION, _torch.CreationMeta.MULTI_OUTPUT_NODE}


@dataclass(frozen=True, eq=False)
class Specialization:
    """Code for calls of one kind.

    Args:
        signature: what a call does.
        call: does it.
        source: its Python code.
        partition: the graphs.
        sources: where inputs are found: a tensor of ``bind``, by position, and whether it is that one's base.
        fits: of code for numbers that are symbols, whether a call's tensors and Python numbers fit; else None.
        guards: what ``fits`` asks, as Python source over the tensors of ``bind``, ``t0``, ``t1`` …, and symbols.
        asks: whether it hangs on attributes that somebody put on tensors.
    """

    signature: Signature
    call: Call
    source: str
    partition: Partition
    sources: tuple[tuple[int, bool], ...]
    fits: Callable[[Sequence[Tensor], Sequence[Any]], bool] | None = None
    guards: tuple[str, ...] = ()
    asks: bool = False

    def run(self, bound: Bound) -> Any:
        """The result of the call that brings ``bound``."""
        tensors = [t for _, t in bound.tensors]
        inputs: Sequence[Any] = [_torch.base_of(tensors[k]) if base else tensors[k] for k, base in self.sources]
        return self.call(inputs, bound.containers, bound.tables, tuple(bound.numbers.values()))


def specialize(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    bind: Callable[[bool], Bound],
    compilers: Compilers,
    dynamic: Dynamic,
) -> tuple[Specialization, Needs]:
    """Compile for this call.

    Args:
        bind: finds what the call brings; with gradients of leaves, if told so.
        dynamic: numbers that are to be symbols. What cannot be traced so is traced with fixed sizes, counted.

    Raises:
        UnsupportedError: the function does what is refused.
        UserError: it raised an error of its own.
    """

    def made(needs: Needs) -> tuple[Specialization, Needs]:
        """Trace until nothing more is needed."""
        while True:
            try:
                traced = trace(fn, args, kwargs, bind(needs.gradients), needs)
            except UserError as error:
                if error.needs == needs:
                    raise
                needs = error.needs
                continue
            if (more := more_needs(traced)) == needs:
                try:
                    return _finish(traced, compilers), needs
                except _torch.GuardOnDataDependentSymNode as error:  # of a float that several operations computed
                    if needs.values:
                        refuse(Event.DATA, "a number that data decide", error)
                    more = needs.also(symbols=True, values=True)
            disarm(traced.tracer.alive)
            needs = more

    reason = "a partition function" if dynamic and compilers.partition is not None else ""
    if dynamic and not reason:
        try:
            return made(Needs(dynamic=dynamic))
        except UnsupportedError as error:
            reason = error.reason
        except Exception as error:
            reason = type(error.__cause__ or error).__name__
    found = made(Needs())
    if reason:  # not of what cannot be traced at all
        count("static", reason)
    return found


def _finish(traced: Traced, compilers: Compilers) -> Specialization:
    try:
        with traced.tracer.asking():
            analysis = analyze(traced)
            held = {name for x in (*analysis.tensors, *traced.position) for name in vars(x)} - {"aot"}
            if not all("_capsule" in name for name in held):  # torch's own, of sizes that C++ asked for
                refuse(Event.ATTRIBUTE, "set inside")
            recorded = tuple(traced.tracer.graph.nodes)
            traced.tracer.kept = [r.tensor for r in analysis.results]  # before torch 2.13 custom nodes die with these
            groups, order = regions(traced, analysis)
            gradients = (_torch.gradient_of(t) for region in groups for t in region.dropped)
            grow = {_torch.address_of(g) for g in gradients if g is not None}
            if any(_torch.address_of(x) in grow for x in analysis.tensors):
                refuse(Event.LEAF, "the gradient of a leaf made inside is returned, and grows with the next backward")
            late = joint.saved_late(traced, analysis) if groups and compilers.partition is None else ()
            backwards = [backward for region in groups for backward in joint.trace_all(traced, region)]
            joint.check_counters(traced, analysis, groups, saves_memory=compilers.partition is None)
            part = _partition(traced, analysis, recorded, backwards, compilers, late)
            takes, symbols = part.forward.inputs, traced.tracer.symbols
            known = [x for x in takes if isinstance(x, str)]
            once = unused(recorded, part, known if symbols is None else [*known, *symbols.reads, *symbols.derived])
            more = [name for name in symbols_of(once) if name not in known]
            made = _emit(traced, analysis, groups, order, part, compilers, late, (*known, *more))
            if once:
                run_once(made.call, [*takes, *more], once, traced.tracer.draws.drawn_from(), len(more))
            return made
    finally:
        disarm(traced.tracer.alive)
        traced.release()


def _partition(
    traced: Traced,
    analysis: Analysis,
    recorded: Sequence[Node],
    backwards: Sequence[joint.Backward],
    compilers: Compilers,
    late: Sequence[joint.SavedLate],
) -> Partition:
    inputs = [i.node for i in traced.inputs if i.node is not None]
    flat = [node for node, _, _ in traced.tracer.table.flat_inputs]
    written: set[Node] = set(flat) if analysis.signature.effects.written else set()
    states = {traced.inputs[w.input].state for w in analysis.signature.effects.written}
    written |= {i.node for i in traced.inputs if i.state in states and i.node is not None}
    given = traced.tracer.graph, [*inputs, *flat], [r.node for r in analysis.results], backwards, written
    whole = partition(*given, saved_late=[x.node for x in late], recorded=recorded)
    log("joint", lambda: python_of(joint_module(traced.tracer.graph, whole)[0], "joint"))
    if compilers.partition is None or not backwards or any(b.error for b in backwards):
        return whole
    return partition(*given, keep=saved_by(compilers.partition, traced.tracer.graph, whole))


def _emit(
    traced: Traced,
    analysis: Analysis,
    groups: Sequence[Region],
    order: Order,
    part: Partition,
    compilers: Compilers,
    late: Sequence[joint.SavedLate],
    given: tuple[str, ...],
) -> Specialization:
    symbols, signature = traced.tracer.symbols, analysis.signature
    if not groups:
        compilers = replace(compilers, forward=compilers.inference)
    kept = _kept_writes(traced, analysis, part) if compilers.keep_writes and not groups else {}
    forward = compile_forward(part.forward, compilers, kept, differentiable=bool(groups), env=symbols and symbols.env)
    attachments = _attachments(traced, analysis, groups, part, compilers)
    graph_inputs: list[int | tuple[int, torch.dtype]] = [k for k, i in enumerate(traced.inputs) if i.node is not None]
    graph_inputs += [(source, dtype) for _, source, dtype in traced.tracer.table.flat_inputs]
    position = {i.real: k for k, i in enumerate(traced.inputs)}
    tensors = [t for _, t in traced.bound.tensors]
    reads, functions, derived = ({}, {}, {}) if symbols is None else (symbols.reads, symbols.functions, symbols.derived)
    read = {
        name: re.sub(r"\bt(\d+)\b", lambda m: f"a{position[tensors[int(m[1])]]}", r.source())
        for name, r in reads.items()
    }
    modes = _modes(traced, part, bool(groups))
    defined = tuple(part.forward.defined)
    asserted = symbols.asserted(defined) if symbols and defined else ()
    taken = Symbolic(read, functions, derived, given, defined, asserted)
    if compilers.forward is not nop:  # results may lie as the compiler likes
        looks = zip(signature.results, analysis.results, strict=True)
        signature = replace(signature, results=tuple(replace(look, stride=r.geometry.stride) for look, r in looks))
    results = {n: k for k, n in enumerate(part.forward.results)}
    shared = {j: results[n] for j, n in enumerate(part.forward.saved) if n in results}
    needed = [x for node in part.forward.saved_late for x in late if x.node is node]
    call, source = emit(signature, forward, graph_inputs, attachments, modes, taken, needed, shared, order)
    found = {t: (k, False) for k, t in enumerate(tensors)}
    bases = {_torch.base_of(t): (k, True) for k, t in reversed([*enumerate(tensors)])}
    sources = tuple((bases if isinstance(i.input.descriptor, BaseOf) else found)[i.real] for i in traced.inputs)
    fits, guards = (symbols.fits(), symbols.asked) if symbols and (reads or functions) else (None, ())
    if fits is not None and not fits(tensors, tuple(traced.bound.numbers.values())):
        refuse(Event.GUARDS)
    return Specialization(analysis.signature, call, source, part, sources, fits, guards, traced.tracer.asks)


def _modes(traced: Traced, part: Partition, differentiable: bool) -> Modes:
    gives_more = differentiable and any(n.op is _RNN for n in part.forward.nodes)
    copied = {n.args[0] for n in part.forward.nodes if n.op is torch.ops.aten._to_copy.default and traced.modes[2]}
    cast = tuple(k for k, i in enumerate(traced.inputs) if i.node in copied and i.input.meta[2:4] == (True, True))
    passed = [k for k, i in enumerate(traced.inputs) if i.input.meta.requires_grad and not _torch.has_hooks(i.real)]
    through = tuple(passed) if traced.tracer.backward_inside else ()
    uncounted = tuple(k for k, i in enumerate(traced.inputs) if i.state.uncounted)
    return Modes(*traced.modes, gives_more, traced.tracer.draws.drawn_from(), cast, through, uncounted)


def _kept_writes(traced: Traced, analysis: Analysis, part: Partition) -> dict[int, int]:
    """Results that the graph itself writes to an input at its end, each with the graph input's position.

    Left to emitted code: writes to flat values, to what also moves, and to inference tensors.
    """
    effects = analysis.signature.effects
    moved = {m.input for m in effects.moved}
    return {
        w.result: part.forward.inputs.index(i.node)
        for w in effects.written
        if (i := traced.inputs[w.input]).node and not (w.flat or w.input in moved or i.input.meta.is_inference)
    }


def _attachments(
    traced: Traced, analysis: Analysis, groups: Sequence[Region], part: Partition, compilers: Compilers
) -> list[Attachment]:
    """For each component what runs its backward, and what must not be written till then."""
    attachments, seen = [], _Seen(traced, analysis)
    early = {how.base for how in analysis.signature.made if isinstance(how, Alias) and how.early}
    lies = [i.geometry for i in traced.inputs]
    for region in groups:
        graphs = [graph for graph in part.backwards if graph.backward.component is region.component]
        known = {n: k for b in graphs for n, k in zip(b.inputs, b.saved, strict=False) if isinstance(n, Node)}
        held = region.held()
        ends = [end.input for end in region.component.inputs if isinstance(end, Given)]
        views = [t for k in ends if k in seen.counted and _torch.base_of(t := traced.inputs[k].real) is not None]
        if _LOST_ONCE_WRITTEN & {*map(_torch.creation_meta, views)}:
            refuse(Event.NO_GRAD_VIEW, "a view that is one of several, or a custom Function's, is written")
        watched = seen.watched(region, held, known)
        raises = any(graph.backward.error for graph in graphs)
        grad_differs = bool(region.dropped) or raises
        works = bool(held) or sum(len(graph.nodes) for graph in graphs) > len(region.ends)
        count = len(region.component.results) if len(region.starts) > 1 else 0
        runner = Runner(
            tuple(sorted(set(known.values()))),
            _maker(traced, region, known, graphs, compilers),
            tuple((h.begins, h.leads) for h in held),
            readers=tuple(watched.values()),
            grad_differs=grad_differs,
            depends_on_inputs=grad_differs or (works and len(region.ends) > 1),  # one alone is asked for
            has_empty=any(g.is_empty for g in (*lies, *(g for g, _ in region.component.tangents))),
            own_nodes=tuple(k for k in range(count) if _torch.takes(region.starts[k][0]) == 1),
        )
        dirty = tuple(k for k in region.component.results if Fresh(k) in early)
        attachments.append(Attachment(runner, region.component, tuple(watched), dirty, raises))
    return attachments


class _Seen:
    """What the caller may write before a backward: inputs, and results, by the addresses of their storages."""

    def __init__(self, traced: Traced, analysis: Analysis) -> None:
        writes, self.inputs = analysis.signature.effects.written, traced.inputs
        written = {k for w in writes for k in w.on_storage}  # they hold no value of the graph any more
        self.counted = {k for w in writes if w.kind is not Mutation.HIDDEN for k in w.on_storage}
        self.left: dict[Node | None, Given] = {}
        self.by_address: dict[int, list[tuple[Given | Made, Tensor, Node | None]]] = {}
        for w in writes:
            for v in traced.inputs[w.input].state.views.values():
                if v.value is not None and v.version == v.state.version and v.value.op != PLACEHOLDER:
                    self.left[v.value] = Given(w.input)
        for k, i in enumerate(traced.inputs):
            if i.node is not None and i.state.flat is not None and not i.state.resized:
                self.left[i.state.flat.value] = Given(k)
            if i.node is not None:
                self._add(Given(k), i.replica, None if k in written else i.node)
        for m, how in enumerate(analysis.signature.made):
            made = how.of if isinstance(how, MadeLeaf) else how
            if isinstance(made, Fresh):
                self._add(Made(m), analysis.tensors[m], analysis.results[made.index].node)

    def _add(self, end: Given | Made, t: Tensor, node: Node | None) -> None:
        for address in {_torch.address_of(t), *(state_of(t).born or ())[:1]}:
            self.by_address.setdefault(address, []).append((end, t, node))

    def watched(
        self, region: Region, held: Sequence[Held], known: Mapping[Node, int]
    ) -> dict[Given | Made, frozenset[int] | None]:
        """What backwards need as it is after the call, or eager's do, and autograd itself does not watch.

        Each with the nodes of eager's that saved it, or may; None of a written input of which these are not known.
        """
        found: dict[Given | Made, frozenset[int] | None] = {}
        for left in [self.left[m] for n in known for m in (n, n.memory) if m in self.left]:
            since = self.inputs[left.input].state.sequence - 1  # what was saved before the last write raises anyway
            unseen = (n for n, node in enumerate(held) if not node.saved and node.sequence >= since)
            found[left] = None if any(map(_torch.is_custom, region.nodes)) else frozenset(unseen)
        memory = {n.memory for n in known} | set(known)
        for n, node in enumerate(held):
            for t in node.saved:
                for end, other, value in self.by_address.get(_torch.address_of(t), ()):
                    if value is not None and value in (memory if isinstance(end, Given) else known):
                        continue
                    before = found.get(end, frozenset())
                    counted = min(_torch.version_of(t), _torch.version_of(other)) >= 0
                    if before is not None and counted and _torch.sharing_versions((t, other)) == (0, 0):
                        found[end] = before | {n}
                        break
        return {end: nodes or None for end, nodes in found.items()}


def _maker(
    traced: Traced, region: Region, known: Mapping[Node, int], graphs: Sequence[BackwardGraph], compilers: Compilers
) -> Callable[[joint.Request], Ready]:
    """Compiles a backward when it is first asked for. One for which the joint graph was not cut is traced then."""
    tracer, symbols = traced.tracer, traced.tracer.symbols
    first = {graph.backward.request: graph for graph in graphs}

    def make(request: joint.Request) -> Ready:
        if (graph := first.get(request)) is None:
            count("late")
            rearm(tracer.alive)
            try:
                with tracer.asking():
                    graph = cut_backward(tracer.graph, known, joint.trace_backward(traced, region, request))
            finally:
                disarm(tracer.alive)
        if graph.backward.error is not None:
            raise graph.backward.error
        own = compilers.backward is nop and symbols is None and not compilers.decompositions
        expanded = graph.expanded if own else (False,) * len(graph.backward.tangents)
        function = compile_backward(graph, compilers, symbols and symbols.env)
        fits = None if symbols is None or (request in first and compilers.backward is nop) else symbols.fits_later()
        return Ready(graph, function, expanded, fits)

    return make
