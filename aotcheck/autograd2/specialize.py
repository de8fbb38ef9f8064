"""One compilation: bind, trace, analyze, joint, partition, compile, emit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.analyze.analysis import Analysis, analyze
from aotcheck.autograd2.analyze.effects import more_needs
from aotcheck.autograd2.frontend.bind import Bound
from aotcheck.autograd2.ir.graph import Node
from aotcheck.autograd2.ir.signature import BaseOf, Signature
from aotcheck.autograd2.joint.joint import Component, components, trace_backward
from aotcheck.autograd2.partition.default import BackwardGraph, Partition, cut_backward, partition
from aotcheck.autograd2.runtime.compile import Compilers, compile_backward, compile_forward
from aotcheck.autograd2.runtime.emit import Attachment, Call, emit
from aotcheck.autograd2.runtime.function import Runner
from aotcheck.autograd2.trace.replica import disarm, rearm
from aotcheck.autograd2.trace.run import Needs, Traced, UserError, trace

__all__ = ["Specialization", "specialize"]


@dataclass(frozen=True, eq=False)
class Specialization:
    """Code for calls of one kind.

    Args:
        signature: what a call does.
        call: does it.
        source: its Python code.
        partition: the graphs.
        sources: where inputs are found: a tensor of ``bind``, by position, and whether it is that one's base.
    """

    signature: Signature
    call: Call
    source: str
    partition: Partition
    sources: tuple[tuple[int, bool], ...]

    def run(self, bound: Bound) -> Any:
        """The result of the call that brings ``bound``."""
        tensors = bound.tensors
        inputs = [_torch.base_of(tensors[k][1]) if base else tensors[k][1] for k, base in self.sources]
        return self.call(inputs, bound.containers, bound.tables)  # type: ignore[arg-type]  # bases are there: the key says so


def specialize(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    bind: Callable[[bool], Bound],
    compilers: Compilers,
) -> tuple[Specialization, Needs]:
    """Compile for this call.

    Args:
        bind: finds what the call brings; with gradients of leaves, if told so.

    Raises:
        UnsupportedError: the function does what is refused.
        UserError: it raised an error of its own.
    """
    needs = Needs()
    while True:
        bound = bind(needs.gradients)
        try:
            traced = trace(fn, args, kwargs, bound, needs)
        except UserError as error:
            if error.needs == needs:
                raise
            needs = error.needs
            continue
        more = more_needs(traced, needs)
        if more == needs:
            return _finish(traced, needs, compilers), needs
        disarm(traced.tracer.alive)
        needs = more


def _finish(traced: Traced, needs: Needs, compilers: Compilers) -> Specialization:
    try:
        analysis = analyze(traced, needs)
        groups = components(traced, analysis.results)
        backwards = [
            trace_backward(traced, analysis.results, group, tuple([True] * len(group.results))) for group in groups
        ]
        part = _partition(traced, analysis, backwards)
        return _emit(traced, analysis, groups, part, compilers)
    finally:
        disarm(traced.tracer.alive)


def _partition(traced: Traced, analysis: Analysis, backwards: Sequence[Any]) -> Partition:
    inputs = [i.node for i in traced.inputs if i.node is not None]
    flat = [node for node, _, _ in traced.tracer.table.flat_inputs]
    written: set[Node] = set(flat) if analysis.signature.effects.written else set()
    for w in analysis.signature.effects.written:
        state = traced.inputs[w.input].state
        written |= {i.node for i in traced.inputs if i.state is state and i.node is not None}
    return partition(traced.tracer.graph, [*inputs, *flat], [r.node for r in analysis.results], backwards, written)


def _emit(
    traced: Traced, analysis: Analysis, groups: Sequence[Component], part: Partition, compilers: Compilers
) -> Specialization:
    forward = compile_forward(part.forward, compilers.forward if groups else compilers.inference)
    attachments = []
    for group, graph in zip(groups, part.backwards, strict=True):
        runner = Runner(
            tuple(sorted(set(graph.saved))),
            _late(traced, analysis, group, part),
            lambda graph: compile_backward(graph, compilers.backward),
            {graph.backward.defined: graph},
        )
        attachments.append(Attachment(runner, group.results, group.inputs))
    graph_inputs: list[int | tuple[int, torch.dtype]] = [k for k, i in enumerate(traced.inputs) if i.node is not None]
    graph_inputs += [(source, dtype) for _, source, dtype in traced.tracer.table.flat_inputs]
    strides = {k: r.geometry.stride for k, r in enumerate(analysis.results) if r.was_written}
    call, source = emit(
        analysis.signature,
        forward,
        graph_inputs,
        attachments,
        strides,
        traced.grad_enabled,
        _records_grad(groups, part),
    )
    position = {id(t): k for k, (_, t) in enumerate(traced.bound.tensors)}
    sources = []
    for i in traced.inputs:
        if isinstance(i.input.descriptor, BaseOf):
            view = next(k for k, (_, t) in enumerate(traced.bound.tensors) if _torch.base_of(t) is i.real)
            sources.append((view, True))
        else:
            sources.append((position[id(i.real)], False))
    return Specialization(analysis.signature, call, source, part, tuple(sources))


def _records_grad(groups: Sequence[Component], part: Partition) -> bool:
    """Whether the graph holds an op whose kernel gives what a backward needs only where grad mode is on."""
    return bool(groups) and any(n.op is torch.ops.aten.mkldnn_rnn_layer.default for n in part.forward.nodes)


def _late(
    traced: Traced, analysis: Analysis, group: Component, part: Partition
) -> Callable[[tuple[bool, ...]], BackwardGraph]:
    """Traces the backward for another set of tangents when it is first asked for."""
    own = next(b for b in part.backwards if b.backward.component is group)

    def late(defined: tuple[bool, ...]) -> BackwardGraph:
        rearm(traced.tracer.alive)
        try:
            with torch.inference_mode(False):
                backward = trace_backward(traced, analysis.results, group, defined)
            return cut_backward(traced.tracer.graph, own, backward)
        finally:
            disarm(traced.tracer.alive)

    return late


def key_of(bound: Bound, gradients: bool) -> tuple[Any, ...]:
    """What must be equal for two calls to share a specialization."""
    storages: dict[int, int] = {}
    parts: list[Any] = [tuple(map(_hashable, bound.key)), gradients, *_ambient()]
    tensors = [t for _, t in bound.tensors]
    known = {id(t): k for k, t in enumerate(tensors)}
    bases: dict[int, int] = {}
    for k, t in enumerate(tensors):
        parts.append(_of_tensor(t))
        if t.layout is not torch.strided or type(t) not in (Tensor, torch.nn.Parameter):
            continue
        storage = t.untyped_storage()
        first = storages.setdefault(_torch.storage_address(storage), k)
        base = _torch.base_of(t)
        if first != k or base is not None:
            parts.append((first, storage.nbytes()))
            parts.append(None if base is None else (known.get(id(base)), bases.setdefault(id(base), k)))
    return tuple(parts)


def _of_tensor(t: Tensor) -> tuple[Any, ...]:
    if t.layout is not torch.strided:
        return (type(t), t.layout)
    marks = t.requires_grad, t.is_leaf, t.is_conj(), t.is_neg(), t.is_inference()
    return (
        type(t),
        tuple(t.shape),
        t.stride(),
        t.storage_offset(),
        t.dtype,
        t.device,
        *marks,
        t.untyped_storage().nbytes(),
    )


def _hashable(x: Any) -> Any:
    try:
        hash(x)
    except TypeError:
        return (type(x), id(x))
    return x


def _ambient() -> tuple[Any, ...]:
    """Modes that what is computed hangs on."""
    cast = torch.is_autocast_enabled("cpu")
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        cast and torch.get_autocast_dtype("cpu"),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        str(torch.get_default_device()),
    )
