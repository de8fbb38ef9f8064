"""One program on one backend, judged."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from aotcheck.backends import Backend, Promise
from aotcheck.oracle.compare import Pair, compare
from aotcheck.oracle.execute import Observation, observe
from aotcheck.oracle.kinds import Difference, OracleKind, Phase, Place, Role, Severity
from aotcheck.oracle.plan import calls_with_the_first_key
from aotcheck.oracle.state import canary, global_state
from aotcheck.oracle.undefined import Pattern, undefined_memory
from aotcheck.oracle.widen import widened
from aotcheck.program import Program, exact


class Outcome(Enum):
    """What became of a program."""

    AGREES = "agrees"
    DIFFERS = "differs"
    REFUSED = "refused"
    UNSTABLE = "unstable"


@dataclass(frozen=True)
class Verdict:
    """What a program showed.

    Args:
        outcome: DIFFERS iff there is a hard difference; REFUSED where the backend said that it does not support the
            program; UNSTABLE where eager does not agree with itself.
        hard: hard differences of the first step that has any, causes before consequences.
        soft: soft differences of all steps up to it, one per kind.
        refusals: the reasons of refusals.
        left_out: how many calls were not made, by the promise that the backend does not give.
        poisoned: the process is not fit for another program.
    """

    outcome: Outcome
    hard: tuple[Difference, ...] = ()
    soft: tuple[Difference, ...] = ()
    refusals: tuple[str, ...] = ()
    left_out: tuple[tuple[Promise, int], ...] = ()
    poisoned: bool = False


def check(program: Program, backend: Backend, device: torch.device) -> Verdict:
    """Run ``program`` eagerly and on ``backend`` and compare every step.

    Whatever the program or the backend raises becomes part of the verdict. What is compared is what the program
    leaves defined (Note [Undefined memory]).
    """
    silenced = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # Dynamo logs the errors of the programs that it is meant to refuse
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            backend.reset()
            return _Check(program, backend, device).verdict()
    finally:
        logging.disable(silenced)


def _eagerly(program: Program, device: torch.device, pattern: Pattern, calls: int) -> tuple[list[Observation], int]:
    """Observe eager, with how often there was undefined memory to fill."""
    found: list[Observation] = []
    with undefined_memory(pattern) as mode:
        for observation in observe(program, _identity, device):
            if observation.call >= calls:
                break
            found.append(observation)
    return found, mode.filled


def _identity(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


def _stable(first: Sequence[Observation], second: Sequence[Observation], undefined: int) -> bool:
    """Whether eager agrees with itself, up to the values that undefined memory explains."""
    if len(first) != len(second):
        return False
    for a, b in zip(first, second, strict=True):
        found = [d for d in compare(Pair(a, b)) if d.severity is Severity.HARD]
        if any(not (undefined and d.oracle is OracleKind.VALUES) for d in found):
            return False
    return True


class _Check:
    """The state of one check; :func:`check` is the interface."""

    def __init__(self, program: Program, backend: Backend, device: torch.device) -> None:
        self.program, self.backend, self.device = program, backend, device
        self.exact = exact(program)
        self.soft: dict[OracleKind, Difference] = {}

    def verdict(self) -> Verdict:
        before_state = global_state()
        calls = len(self.program.calls)
        eager, undefined = _eagerly(self.program, self.device, Pattern.PLAIN, calls)
        left_out: tuple[tuple[Promise, int], ...] = ()
        if Promise.GUARDS not in self.backend.promises and calls > 1:
            made = calls_with_the_first_key(self.program, self.device, eager)
            left_out = ((Promise.GUARDS, calls - made),) if made < calls else ()
            calls = made
        other = _eagerly(self.program, self.device, Pattern.ODD, calls)[0] if undefined else None
        if other is not None and not _stable(eager[: len(other)], other, undefined):
            return Verdict(Outcome.UNSTABLE, left_out=left_out)
        before = self.backend.refusals()
        hard, refused = self._first_difference(eager, other, calls)
        reasons = _grown(before, self.backend.refusals())
        if refused and refused not in reasons:
            reasons = (*reasons, refused)
        if hard and other is None:
            again = _eagerly(self.program, self.device, Pattern.ODD, calls)[0]
            if not _stable(eager[: len(again)], again, 0):
                return Verdict(Outcome.UNSTABLE, left_out=left_out)
        poison = self._poison(before_state)
        if poison is not None:
            hard = (*hard, poison)
        outcome = Outcome.DIFFERS if hard else Outcome.REFUSED if reasons else Outcome.AGREES
        return Verdict(outcome, hard, tuple(self.soft.values()), reasons, left_out, poison is not None)

    def _first_difference(
        self, eager: Sequence[Observation], other: Sequence[Observation] | None, calls: int
    ) -> tuple[tuple[Difference, ...], str]:
        """The hard differences of the first step that has any, or the reason of a refusal that comes before."""
        references = self._references(calls)
        steps = _upto(observe(self.program, self.backend.compile, self.device), calls)
        for index, compiled in enumerate(steps):
            if compiled.raised is not None and compiled.raised.refusal:
                return (), compiled.raised.refusal
            pair = Pair(
                eager[index],
                compiled,
                other[index] if other else None,
                references[index] if references else None,
                self.exact,
                self.backend.promises,
            )
            found = compare(pair)
            for difference in found:
                if difference.severity is Severity.SOFT:
                    self.soft.setdefault(difference.oracle, difference)
            hard = tuple(d for d in found if d.severity is Severity.HARD)
            if hard:
                return hard, ""
        return (), ""

    def _references(self, calls: int) -> Sequence[Observation] | None:
        """The same program in float64, where the program is inexact and means the same there."""
        wide = None if self.exact else widened(self.program)
        return _eagerly(wide, self.device, Pattern.PLAIN, calls)[0] if wide is not None else None

    def _poison(self, before: object) -> Difference | None:
        """What is wrong with the process now, if anything is."""
        wrong = canary()
        if not wrong and global_state() == before:
            return None
        place = Place(Role.PROCESS, call=0, phase=Phase.FORWARD)
        text = wrong or "global state has changed"
        return Difference(OracleKind.POISONING, Severity.HARD, place, "leaves the process as it was", text)


def _upto(steps: Iterator[Observation], calls: int) -> Iterator[Observation]:
    for step in steps:
        if step.call >= calls:
            return
        yield step


def _grown(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(reason for reason, count in after.items() if count > before.get(reason, 0)))
