"""Eager's run of a program, and everything that is needed to judge another run by eager's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch

from aotcheck.backends import Backend
from aotcheck.oracle.compare import STRICT, Pair, compare
from aotcheck.oracle.execute import Observation, identity, observe
from aotcheck.oracle.kinds import OracleKind, Phase, Severity
from aotcheck.oracle.undefined import (
    LARGE,
    MONOTONE,
    NEGATIVE,
    ODD,
    PLAIN,
    RANDOM,
    STEEP,
    UNEVEN,
    Pattern,
    small,
    undefined_memory,
)
from aotcheck.oracle.widen import widened
from aotcheck.program import Program, exact, flat_calls
from aotcheck.program.running.interpret import dtype_of

_SMALL = 8  # memory that is back may hold any number of the inputs; those of large ones are too many to try

ByStep = dict[tuple[int, Phase, int, int], Observation]


class Reference:
    """Eager's observations of the first ``calls`` calls of ``program``.

    ``fills`` are those with undefined memory filled in several ways, none where none is known to be left undefined
    (Note [Undefined memory]).
    """

    def __init__(self, program: Program, device: torch.device, calls: int) -> None:
        self.program, self.device, self.calls = program, device, calls
        self.exact = exact(program)
        self.eager = eagerly(program, device, calls)
        self.fills: list[Sequence[Observation]] = []
        self._by_fill: list[ByStep] = []  # under a mode a step may not raise
        # The same program in float64, where the program is inexact and means the same there. Made at once: it draws
        # random numbers, which must not happen in the middle of another run.
        wide = None if self.exact else widened(program)
        self._wide = _by_step(eagerly(wide, device, calls)) if wide is not None else {}

    def fill(self) -> bool:
        """Find out which memory is undefined. False if there is none."""
        return self._fill((PLAIN, ODD))

    def look_closer(self) -> None:
        """Fill memory that is known to be undefined in more ways.

        It may hold what the program itself has put there, and what a comparison or a sort makes of it may be the same
        for all numbers but some.
        """
        inputs = [call.inputs for call in self.program.calls if call.inputs is not None]
        storages = [s for i in inputs for s in i.storages]
        put = dict.fromkeys(n for s in storages for n in s.data if abs(n) < _SMALL)
        numbers = small(map(dtype_of, dict.fromkeys(("float32", *[s.dtype for s in storages]))), put)
        self._fill((*numbers, LARGE, NEGATIVE, UNEVEN, *MONOTONE, STEEP, *RANDOM))

    def _fill(self, patterns: Iterable[Pattern]) -> bool:
        for pattern in patterns:
            with undefined_memory(pattern) as mode:
                found = eagerly(self.program, self.device, self.calls)
            if not mode.filled and not self.fills:
                return False
            self.fills.append(found)
            self._by_fill.append(_by_step(found))
        return True

    def pair(self, index: int, compiled: Observation, backend: Backend = STRICT) -> Pair:
        """What ``backend`` showed after the step ``index``, beside all that it is judged by."""
        step = compiled.step
        known = all(step in fill for fill in self._by_fill)
        return Pair(
            self.eager[index],
            compiled,
            tuple(fill[step] for fill in self._by_fill) if known else (),
            self._wide.get(step),
            self.exact,
            backend,
        )

    @property
    def stable(self) -> bool:
        """Whether all fills agree but for the values that undefined memory explains."""
        return all(_same(self.fills[0], fill, undefined=True) for fill in self.fills[1:])

    def repeats(self) -> bool:
        """Whether eager does the same once more."""
        again = eagerly(self.program, self.device, self.calls)
        return _same(self.eager[: len(again)], again, undefined=bool(self.fills))


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
