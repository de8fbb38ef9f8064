"""Eager's run of a program, with everything that is needed to judge a backend's run by it."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

import torch

from aotcheck.backends import Backend
from aotcheck.oracle.compare import STRICT, Pair, compare, finds_a_write
from aotcheck.oracle.execute import Observation, StepKey, identity, observe
from aotcheck.oracle.kinds import OracleKind, Severity
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
from aotcheck.oracle.values import CAST, FUZZED
from aotcheck.oracle.widen import widened
from aotcheck.program import Call, Probe, Program, casts, exact, flat_calls
from aotcheck.program.running.interpret import dtype_of

_SMALL = 8  # memory that is back may hold any number of the inputs; those of large ones are too many to try

ByStep = dict[StepKey, Observation]


class Reference:
    """Eager's observations of the first ``calls`` calls of ``program``.

    ``fills`` are eager's observations with undefined memory filled in several ways; none if no undefined memory is
    known (Note [Undefined memory]).
    """

    def __init__(self, program: Program, device: torch.device, calls: int) -> None:
        self.program, self.device, self.calls = program, device, calls
        self.exact = exact(program)
        self.tolerance = CAST if casts(program) else FUZZED
        self.eager = eagerly(program, device, calls)
        self.fills: list[Sequence[Observation]] = []
        self.expected = self.eager
        """What is compared with: eager's run; once that raised for a write of the caller's, the run with copies."""
        self._copies: list[Observation] = []
        self._kept: ByStep = {}
        self._by_fill: list[ByStep] = []  # under a mode a step may not raise
        # The same program in float64, where the program is inexact and means the same there. Made at once: it draws
        # random numbers, which must not happen in the middle of another run.
        wide = None if self.exact else widened(program)
        self._wide = _by_step(eagerly(wide, device, calls)) if wide is not None else {}

    def keep(self, raised: Set[StepKey]) -> bool:
        """Run eager with copies of what autograd saves. Steps that ``raised`` in both runs do as if they raised here.

        What a backward that raised has accumulated is dropped, so it must be there too.
        False if eager never found that a saved tensor was written, or finds it too where each call is made once and
        nothing is written between its steps.
        """
        by_itself = replace(self.program, calls=_undisturbed(self.program.calls))
        if not _raises(self.eager) or _raises(eagerly(by_itself, self.device, self.calls)):
            return False
        with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda saved: saved):
            both = {o.step: o.raised for o in self.eager if o.raised is not None and o.step in raised}
            steps = observe(self.program, identity, self.device, raises=both)
            self._copies = [*upto(steps, self.calls)]
        self._kept = _by_step(self._copies)
        return True

    def goes_on(self, index: int) -> bool:
        """Compare the steps after this one, in which only eager raised, with the run that saves copies.

        False if that run raised too, or memory is undefined: then nothing after this step can be compared.
        """
        there = self._copies[index : index + 1]
        if self.fills or not there or there[0].raised is not None:
            return False
        self.expected = self._copies
        return True

    def fill(self) -> bool:
        """Fill undefined memory to see which values depend on it. False if there is no such memory."""
        return self._fill((PLAIN, ODD))

    def look_closer(self) -> None:
        """Fill undefined memory with more patterns.

        It may hold numbers that the program put there, and a comparison or a sort may give the same result for nearly
        all other fills.
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
        """The pair of eager and ``backend`` after step ``index``, with all that is needed to judge it."""
        step = compiled.step
        known = all(step in fill for fill in self._by_fill)
        return Pair(
            self.expected[index],
            compiled,
            tuple(fill[step] for fill in self._by_fill) if known else (),
            self._wide.get(step),
            self.exact,
            backend,
            self._kept.get(step),
            self.tolerance,
        )

    @property
    def stable(self) -> bool:
        """True if all fills agree, except in values that depend on undefined memory."""
        return all(_same(self.fills[0], fill, undefined=True) for fill in self.fills[1:])

    def repeats(self) -> bool:
        """True if another run of eager gives the same observations."""
        again = eagerly(self.program, self.device, self.calls)
        return _same(self.eager[: len(again)], again, undefined=bool(self.fills))


def _undisturbed(calls: Sequence[Call]) -> tuple[Call, ...]:
    """The calls without writes of the caller's.

    A call that takes the arguments of an earlier one again may write what that one saved, so it is left out; then
    backwards of earlier calls are left out too, since calls are counted from the end.
    """
    own = [call for call in calls if call.inputs is not None]
    late = len(own) == len(calls)
    steps = [[s for s in c.steps if not isinstance(s, Probe) and (late or not getattr(s, "calls_ago", 0))] for c in own]
    return tuple([replace(call, steps=tuple(its)) for call, its in zip(own, steps, strict=True)])


def _raises(steps: Sequence[Observation]) -> bool:
    """Whether a backward raised as what it needs was written."""
    return any(o.raised is not None and finds_a_write(o.raised) for o in steps)


def _by_step(steps: Sequence[Observation]) -> ByStep:
    return {o.step: o for o in steps}


def eagerly(program: Program, device: torch.device, calls: int) -> list[Observation]:
    """Eager's observations of the first ``calls`` calls."""
    return list(upto(observe(program, identity, device), calls))


def upto(steps: Iterator[Observation], calls: int) -> Iterator[Observation]:
    """The steps of the first ``calls`` calls; later calls do not run."""
    for step in steps:
        if step.call >= calls:
            return
        yield step


def may_leave_memory_undefined(program: Program) -> bool:
    """True if the program calls an op that is known to do so. If another op does, a difference still leads to fills."""
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
