"""What is checked when a compiled forward runs for the first time, before anything of the caller's has been touched.

Note [First run]
A trace foretells shapes and strides from meta kernels, and both differ from real ones in places; a program's dead code
may raise though no graph holds it. Both show only on real data, so the first run compares what it gets with the record,
and runs once what the graph leaves out. Where a result lies otherwise than foretold, the traced ops are run one by one:
the op whose shape or strides were foretold wrongly is remembered, and the call is traced again. If there is none, it
was the compiler that laid the result out otherwise, and it is laid out as eager has it. A compiler or a decomposition
may also hand back its operand where eager copies it: such a result is copied (``merged``), in every run.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.graphs import failing
from aotcheck.autograd.graphs.graph import Graph, cut, interpreter
from aotcheck.autograd.ir.metadata import METADATA
from aotcheck.autograd.ir.trace import CONSTANT, PLACEHOLDER, Geometry, Trace, Value, ancestors, real
from aotcheck.autograd.ops.twins import viewed
from aotcheck.autograd.record.record import GraphOutput
from aotcheck.autograd.state.global_state import AutocastOff
from aotcheck.autograd.tensors.memory import ones, with_layout
from aotcheck.autograd.tensors.subclasses import PLAIN_TYPES, is_wrapper

_MOST_TO_TRY = 1 << 26  # bytes of what is made to see how the results of ops lie


def run_dead_code(values: Sequence[Value], inputs: Sequence[Value], forward: set[Value], args: Sequence[Any]) -> bool:
    """Run what of ``values`` is not in ``forward``, because eager would run it and it may raise. True if there was any.

    Meta kernels accept more than real ones, and what an error depends on may be data.
    """
    dead = [v for v in values if v not in forward and v.op is not CONSTANT]
    if not dead:
        return False
    keep = ancestors(dead)
    given = set(inputs)
    if any(v.op is PLACEHOLDER and v not in given for v in keep):
        return False
    run = interpreter(cut("dead code", inputs, values, keep, []))
    run(*[a.detach() if isinstance(a, Tensor) else a for a in args])
    return True


def learn_strides(graph: Graph, keys: dict[Value, Any], inputs: Sequence[Any]) -> bool:
    """Run ``graph`` op by op; note shapes and strides that are not what the meta kernel said. True if any was new."""
    return _learn(graph.values, dict(zip(graph.inputs, inputs, strict=True)), keys)


def learn_of_failed(trace: Trace, keys: dict[Value, Any]) -> bool:
    """Run what was recorded of a call whose trace raised, on ones; note what was foretold wrongly. True if any was.

    What raised may have met strides that eager does not: it is asked once what each op gives.
    """
    asked = set(keys.values())
    placeholders = [(v, v.geometry, v.device) for v in trace.placeholders]
    size = sum(g.elements_reached * g.dtype.itemsize for _, g, _ in placeholders if g is not None)
    if METADATA.settled.issuperset(asked) or size > _MOST_TO_TRY:
        return False
    known: dict[Value, Any] = {}
    devices = [d for d in {device for _, _, device in placeholders} if d is not None and d.type == "cuda"]
    with AutocastOff(), torch.no_grad(), warnings.catch_warnings(), torch.random.fork_rng(devices=devices):
        warnings.simplefilter("ignore")
        for v, g, device in placeholders:
            if g is not None:
                known[v] = ones(g, device)
        learnt = _learn(trace.values, known, keys)
    METADATA.settle(asked)
    return learnt


def _learn(values: Sequence[Value], known: dict[Value, Any], keys: dict[Value, Any]) -> bool:
    """Run ``values``, in order, on what is ``known``. The first answer to a key counts."""
    learnt = False
    answered: set[Any] = set()
    with torch.no_grad():
        for v in values:
            if v.op is CONSTANT:
                known[v] = v.constant
                continue
            try:
                args, kwargs = [real(a, known) for a in v.args], {k: real(a, known) for k, a in v.kwargs.items()}
                result = known[v] = v.op(*args, **kwargs)
            except Exception:  # nor is what is computed of it known
                continue
            key = keys.get(v)
            told = METADATA.get(key) if key is not None else None
            if told is None or key in answered:
                continue
            foretold = _as_foretold(v, key, args)
            if foretold is None:
                continue
            if any(x is not y for x, y in zip(foretold, args, strict=True)):
                result = v.op(*foretold, **kwargs)
            answered.add(key)
            container, geometries, device = told
            tensors = [result] if container is None else list(result)[: len(geometries)]
            corrected = tuple(
                g
                if _agrees(t, g)
                else g._replace(shape=tuple(t.shape), stride=t.stride(), conj=t.is_conj(), neg=t.is_neg())
                for t, g in zip(tensors, geometries, strict=True)
            )
            if corrected != geometries:
                METADATA.correct(key, (container, corrected, device))
                learnt = True
    return learnt


def _as_foretold(v: Value, key: Any, args: Sequence[Any]) -> list[Any] | None:
    """The op's arguments, its tensors lying as the key says that they do; None where they cannot be copied so.

    What is written in eager is computed anew in the graph, and may then lie otherwise.
    """
    laid_out = list(args)
    for k, (a, part) in enumerate(zip(v.args, key[1:], strict=False)):
        if type(a) is Value and type(part) is tuple and part and type(part[0]) is Geometry:
            t, shape, stride = args[k], part[0].shape, part[0].stride
            if shape == tuple(t.shape) and stride != t.stride():
                if any(n > 1 and step == 0 for n, step in zip(shape, stride, strict=True)):
                    return None
                laid_out[k] = with_layout(t, Geometry(0, shape, stride, t.dtype, t.is_conj(), t.is_neg()))
    return laid_out


def laid_out_as(t: Any, output: GraphOutput) -> bool:
    """Whether a result lies in its storage as eager's does.

    What is only copied into an input (no replica of its own) may lie as it likes.
    """
    g = output.geometry
    if g is None or output.tensor is None or not isinstance(t, Tensor):
        return True
    return t.storage_offset() == g.offset and _agrees(t, g)


def merged(
    results: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Value], saved: Sequence[Value]
) -> frozenset[int]:
    """Which of a forward's ``results`` lie in memory of an input or of another result, though in the trace they do not.

    ``outputs`` are the values of the first of them, of which no two share memory, ``saved`` those of the others.
    """
    given = {_memory(a) for a in inputs}
    places = [_memory(t) for t in results]
    found: set[int] = set()
    met: set[int | None] = set()
    for k in range(len(outputs)):
        if places[k] is not None and (places[k] in given or places[k] in met):
            found.add(k)
        met.add(places[k])
    index = {v: k for k, v in enumerate(outputs)}
    for k, v in enumerate(saved, len(outputs)):
        if v.memory is not None or places[k] is None:
            continue
        own = index.get(viewed(v, index))
        apart = own is None or own in found or places[own] != places[k]
        if places[k] in given or (apart and places[k] in met):
            found.add(k)
    return frozenset(found)


def _memory(t: Any) -> int | None:
    """Which memory a tensor lies in, if it is one that lies in one piece."""
    if not isinstance(t, Tensor) or t.layout is not torch.strided or (type(t) not in PLAIN_TYPES and is_wrapper(t)):
        return None
    return _torch.storage_address(_torch.storage_of(t))


def shaped_as(t: Tensor, g: Geometry) -> bool:
    """Whether a result has the shape that a meta kernel foretold; some are wrong."""
    return tuple(t.shape) == g.shape


def much_the_same(t: Tensor, g: Geometry) -> bool:
    """Whether only strides of size-1 dimensions differ; those of empty tensors show in the offsets of their views."""
    if t.storage_offset() != g.offset or t.is_conj() != g.conj or t.is_neg() != g.neg:
        return False
    if 0 in g.shape:
        return bool(t.stride() == g.stride)
    return all(n == 1 or a == b for n, a, b in zip(g.shape, t.stride(), g.stride, strict=True))


def _agrees(t: Any, g: Geometry | None) -> bool:
    """Whether a result lies as foretold; kernels may also answer with a lazy conjugate."""
    if t is None or g is None:
        return True
    return bool(shaped_as(t, g) and t.stride() == g.stride and t.is_conj() == g.conj and t.is_neg() == g.neg)


class Restorable:
    """What a graph may change while it runs, as it was before: generators' states, and inputs it writes on purpose."""

    def __init__(self, random: bool, generators: Sequence[torch.Generator], written: Sequence[Tensor]) -> None:
        self._states = failing.generator_states(*generators) if random else None
        self._written = [(t, t.detach().clone()) for t in written]

    def restore(self) -> None:
        """Put everything back."""
        if self._states is not None:
            failing.restore_generators(self._states)
        for t, before in self._written:
            with torch.no_grad():
                t.copy_(before)
