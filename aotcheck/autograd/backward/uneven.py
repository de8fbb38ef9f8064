"""Which custom Functions have backwards that are not linear: see Note [Functions cut off]."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from aotcheck.autograd.ir.linear import are_linear
from aotcheck.autograd.ir.trace import Value
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.replicas.sparse import SparseReplica
from aotcheck.autograd.tensors.subclasses import leaves_of

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture
    from aotcheck.autograd.ops.tracer import Tracer


def noting_uneven(capture: Capture, nodes: Collection[Any]) -> contextlib.AbstractContextManager[set[Any]]:
    """Inside, those of ``nodes`` are noted that run and are not linear in what comes to them."""
    return _noting(capture.tracer, nodes) if nodes else contextlib.nullcontext(set())


@contextlib.contextmanager
def _noting(tracer: Tracer, nodes: Collection[Any]) -> Iterator[set[Any]]:
    found: set[Any] = set()
    watches = {n: _Watch(tracer) for n in nodes}
    hooks = []
    for n, watch in watches.items():
        before = n.register_prehook(watch.begin)
        # The program's own come after: they are part of what is done with the gradient.
        before.hooks_dict_ref().move_to_end(before.id, last=False)
        hooks += [before, n.register_hook(watch.end)]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
    found.update(n for n, watch in watches.items() if not all(run.is_linear() for run in watch.runs))


@dataclasses.dataclass(frozen=True)
class _Run:
    """What a node was given and gave, None if that is not known or would be other numbers the next time.

    ``between`` was recorded meanwhile.
    """

    given: list[Value] | None
    made: list[Value] | None
    between: list[Value]

    def is_linear(self) -> bool:
        return self.given is not None and self.made is not None and are_linear(self.made, self.given, self.between)


class _Watch:
    """What a node is given, and how much was recorded when it began; its ``runs`` that are over."""

    def __init__(self, tracer: Tracer) -> None:
        self.runs: list[_Run] = []
        self._tracer = tracer
        self._given: list[Value] | None = None
        self._begun = self._drawn = 0

    def begin(self, gradients: Sequence[Tensor | None]) -> None:
        """The node comes next, with these ``gradients``."""
        self._given = self._values(gradients)
        self._begun, self._drawn = len(self._tracer.trace.values), len(self._tracer.trace.effects)

    def end(self, gradients: Sequence[Tensor | None], _: Any) -> None:
        """It has run, and gave these ``gradients``."""
        drew = len(self._tracer.trace.effects) > self._drawn
        made = None if drew else self._values(gradients)
        self.runs.append(_Run(self._given, made, self._tracer.trace.values[self._begun :]))

    def _values(self, gradients: Sequence[Tensor | None]) -> list[Value] | None:
        """What they hold; None if one of them is nothing that the trace knows."""
        parts = [x for g in gradients if g is not None for x in leaves_of(g)]
        known = all(isinstance(x, (Replica, SparseReplica)) for x in parts)
        return [self._tracer.table.read(x) for x in parts] if known else None
