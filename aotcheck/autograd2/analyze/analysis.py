"""The signature of a trace, and the results that its graph has to give."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.analyze.effects import data_mutations, metadata_mutations
from aotcheck.autograd2.analyze.results import Result, Results
from aotcheck.autograd2.frontend.bind import Bound
from aotcheck.autograd2.ir.meta import is_leaf
from aotcheck.autograd2.ir.signature import Assign, Effects, Given, GradOf, Made, Signature
from aotcheck.autograd2.ir.structure import Structure, take_apart
from aotcheck.autograd2.ir.tables import GONE
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.run import Traced


@dataclass(frozen=True, eq=False)
class Analysis:
    """What a specialization does, and the graph's results; ``tensors`` are the replicas of what it makes."""

    signature: Signature
    results: tuple[Result, ...]
    tensors: tuple[Tensor, ...]


def analyze(traced: Traced) -> Analysis:
    """Read off the states of the trace what the call did."""
    results = Results(traced)
    written = data_mutations(traced, results)
    shared = _Shared(traced)
    tensors: list[Tensor] = []
    position: dict[Tensor, int] = {}

    def leaf(t: Tensor) -> int:
        if t not in position:
            position[t] = len(tensors)
            tensors.append(t)
        return position[t]

    def apart(x: Any) -> Structure:
        return take_apart(x, leaf, functools.partial(shared.position, apart), _refuse_object)

    output = apart(traced.result)
    assigned = [Assign(table, apart(key), None if v is GONE else apart(v)) for table, key, v in traced.changes]
    gradients = _gradients(traced, apart, tensors) if traced.tracer.needs.gradients else ()
    if any(t.retains_grad for t in (*traced.position, *tensors)):
        refuse(Event.HOOK, "retain_grad")
    results.make_all(tensors)
    moved = metadata_mutations(traced, results)
    results.finish()
    shared.looked = Bound().container  # ``apart`` is a cycle, and would keep what the call brought
    signature = Signature(
        tuple(i.input for i in traced.inputs),
        tuple(results.made),
        output,
        Effects(written, moved, tuple(assigned), gradients, traced.grad_mode),
        tuple(r.look for r in results.of_graph),
        tuple(shared.built),
    )
    return Analysis(signature, tuple(results.of_graph), tuple(results.tensors))


class _Shared:
    """Containers that the function made and put in several places, which stay one."""

    def __init__(self, traced: Traced) -> None:
        self.looked = traced.bound.container
        self.count = len(traced.bound.containers)
        self.built: list[Structure] = []
        self.places: list[tuple[Any, int]] = []
        self.repeated: list[Any] = []
        met = Bound()

        def meet(x: Any) -> int | None:
            if (position := self.looked(x)) is not None:
                return position
            if met.enter(x, ""):
                return None
            if not any(x is y for y in self.repeated):
                self.repeated.append(x)
            return 0

        for x in (traced.result, *(x for _, key, v in traced.changes for x in (key, v))):
            take_apart(x, lambda t: 0, meet, _refuse_object)

    def position(self, apart: Callable[[Any], Structure], x: Any) -> int | None:
        """Where a call finds the container ``x``; None if it is built in place."""
        if (position := self.looked(x)) is not None or not any(x is y for y in self.repeated):
            return position
        if (known := next((k for y, k in self.places if y is x), None)) is None:
            self.repeated = [y for y in self.repeated if y is not x]
            structure = apart(x)
            self.built.append(structure)
            known = self.count + len(self.built) - 1
            self.places.append((x, known))
            self.repeated.append(x)
        return known


def _gradients(traced: Traced, apart: Any, tensors: list[Tensor]) -> tuple[tuple[Given | Made, Structure], ...]:
    """Leaves whose ``.grad`` is another tensor than before; ``tensors`` are those that the call gives."""
    before = {i.input.descriptor.of: i.replica for i in traced.inputs if isinstance(i.input.descriptor, GradOf)}
    found: list[tuple[Given | Made, Structure]] = []
    for k, i in enumerate(traced.inputs):
        now = _torch.gradient_of(i.replica)
        if now is not before.get(i.input.descriptor):
            if now is not None and now.shape != i.replica.shape:
                refuse(Event.LEAF, f"{i.input.descriptor} gets a gradient and then another shape")
            found.append((Given(k), apart(now)))
    for k, t in enumerate(tensors):  # which grow
        gradient = _torch.gradient_of(t) if is_leaf(t) and traced.input_of(t) is None else None
        if gradient is not None and any(gradient is x for x in tensors):
            refuse(Event.LEAF, "a leaf made inside is returned, and its gradient too")
        if gradient is not None:
            found.append((Made(k), apart(gradient)))
    return tuple(found)


def _refuse_object(name: str) -> NoReturn:
    refuse(Event.STATE, f"an object of class {name} is returned or assigned")
