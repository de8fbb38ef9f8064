"""What eager does with a program, and all that it takes to judge another run of it by that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from aotcheck.backends import Promise
from aotcheck.backends.backend import EVERY_PROMISE
from aotcheck.oracle.compare import Pair, compare
from aotcheck.oracle.execute import Observation, identity, observe
from aotcheck.oracle.kinds import OracleKind, Phase, Severity
from aotcheck.oracle.undefined import Pattern, undefined_memory
from aotcheck.oracle.widen import widened
from aotcheck.program import Program, exact, flat_calls

Fills = tuple[Sequence[Observation], Sequence[Observation]]
ByStep = dict[tuple[int, Phase, int, int], Observation]


class Reference:
    """Eager's observations of the first ``calls`` calls of ``program``.

    ``fills`` are those with undefined memory filled in two ways, None where none is known to be left undefined
    (Note [Undefined memory]).
    """

    def __init__(self, program: Program, device: torch.device, calls: int) -> None:
        self.program, self.device, self.calls = program, device, calls
        self.exact = exact(program)
        self.eager = eagerly(program, device, calls)
        self.fills: Fills | None = None
        self._by_fill: tuple[ByStep, ByStep] = ({}, {})  # under a mode a step may not raise
        # The same program in float64, where the program is inexact and means the same there. Made at once: it draws
        # random numbers, which must not happen in the middle of another run.
        wide = None if self.exact else widened(program)
        self._wide = _by_step(eagerly(wide, device, calls)) if wide is not None else {}

    def fill(self) -> bool:
        """Find out which memory is undefined. False if there is none."""
        found, filled = [], 0
        for pattern in (Pattern.PLAIN, Pattern.ODD):
            with undefined_memory(pattern) as mode:
                found.append(eagerly(self.program, self.device, self.calls))
            filled += mode.filled
            if not filled:
                return False
        self.fills = found[0], found[1]
        self._by_fill = _by_step(found[0]), _by_step(found[1])
        return True

    def pair(self, index: int, compiled: Observation, promises: frozenset[Promise] = EVERY_PROMISE) -> Pair:
        """What another run showed after the step ``index``, beside all that it is judged by."""
        one, two = self._by_fill
        step = compiled.step
        return Pair(
            self.eager[index],
            compiled,
            (one[step], two[step]) if step in one.keys() & two.keys() else None,
            self._wide.get(step),
            self.exact,
            promises,
        )

    @property
    def stable(self) -> bool:
        """Whether the two fills agree but for the values that undefined memory explains."""
        return self.fills is None or _same(*self.fills, undefined=True)

    def repeats(self) -> bool:
        """Whether eager does the same once more."""
        again = eagerly(self.program, self.device, self.calls)
        return _same(self.eager[: len(again)], again, undefined=self.fills is not None)


def _by_step(steps: Sequence[Observation]) -> ByStep:
    return {o.step: o for o in steps}


def eagerly(program: Program, device: torch.device, calls: int) -> list[Observation]:
    """What eager shows in the first ``calls`` calls."""
    return list(upto(observe(program, identity, device), calls))


def upto(steps: Iterator[Observation], calls: int) -> Iterator[Observation]:
    """The steps of the first ``calls`` calls; nothing runs that comes after."""
    for step in steps:
        if step.call >= calls:
            return
        yield step


def may_leave_memory_undefined(program: Program) -> bool:
    """By the names of its ops; where that misses one, a difference makes the check look again."""
    return any(part in call.path for call in flat_calls(program.body) for part in ("empty", "resize", "set_"))


def _same(first: Sequence[Observation], second: Sequence[Observation], undefined: bool) -> bool:
    """Whether eager agrees with itself, up to the values that undefined memory explains."""
    if len(first) != len(second):
        return False
    for a, b in zip(first, second, strict=True):
        found = [d for d in compare(Pair(a, b)) if d.severity is Severity.HARD]
        if any(not (undefined and d.oracle is OracleKind.VALUES) for d in found):
            return False
    return True
