"""One program on one backend, judged."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import torch

from aotcheck.backends import Backend, Promise
from aotcheck.oracle.compare import Pair, compare
from aotcheck.oracle.execute import Observation, identity, observe
from aotcheck.oracle.kinds import Difference, OracleKind, Phase, Place, Role, Severity
from aotcheck.oracle.plan import as_promised, calls_with_the_first_key
from aotcheck.oracle.state import canary, global_state
from aotcheck.oracle.undefined import Pattern, undefined_memory
from aotcheck.oracle.widen import widened
from aotcheck.program import Program, exact, flat_calls


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
        left_out: how many calls or steps were not made, or made otherwise, by the promise that the backend does not
            give.
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


def _eagerly(program: Program, device: torch.device, calls: int) -> list[Observation]:
    return list(_upto(observe(program, identity, device), calls))


def _upto(steps: Iterator[Observation], calls: int) -> Iterator[Observation]:
    for step in steps:
        if step.call >= calls:
            return
        yield step


def _may_leave_memory_undefined(program: Program) -> bool:
    """By the names of its ops; where that misses one, a difference makes the check look again."""
    return any(part in call.path for call in flat_calls(program.body) for part in ("empty", "resize", "set_"))


def _stable(first: Sequence[Observation], second: Sequence[Observation], undefined: bool) -> bool:
    """Whether eager agrees with itself, up to the values that undefined memory explains."""
    if len(first) != len(second):
        return False
    for a, b in zip(first, second, strict=True):
        found = [d for d in compare(Pair(a, b)) if d.severity is Severity.HARD]
        if any(not (undefined and d.oracle is OracleKind.VALUES) for d in found):
            return False
    return True


Fills = tuple[Sequence[Observation], Sequence[Observation]]


class _Check:
    """The state of one check; :func:`check` is the interface."""

    def __init__(self, program: Program, backend: Backend, device: torch.device) -> None:
        self.program, changed = as_promised(program, backend.promises)
        self.backend, self.device = backend, device
        self.left_out: dict[Promise, int] = {Promise.DOUBLE_BACKWARD: changed} if changed else {}
        self.exact = exact(program)
        self.calls = len(program.calls)
        self.soft: dict[OracleKind, Difference] = {}

    def verdict(self) -> Verdict:
        before_state = global_state()
        eager = _eagerly(self.program, self.device, self.calls)
        if Promise.GUARDS not in self.backend.promises and self.calls > 1:
            made = calls_with_the_first_key(self.program, self.device, eager)
            if made < self.calls:
                self.left_out[Promise.GUARDS] = self.calls - made
            self.calls = made
        left_out = tuple(self.left_out.items())
        fills = self._fills() if _may_leave_memory_undefined(self.program) else None
        before = self.backend.refusals()
        hard, refused = self._first_difference(eager, fills)
        poison = self._poison(before_state)
        if hard and not poison and fills is None and (fills := self._fills()) is not None:
            self.soft.clear()
            self.backend.reset()
            hard, refused = self._first_difference(eager, fills)
            poison = self._poison(before_state)
        reasons = _grown(before, self.backend.refusals())
        if refused and refused not in reasons:
            reasons = (*reasons, refused)
        if poison is not None:  # nothing that runs here now can be trusted, eager again neither
            return Verdict(Outcome.DIFFERS, (*hard, poison), tuple(self.soft.values()), reasons, left_out, True)
        if (fills is not None and not _stable(*fills, undefined=True)) or (hard and not self._repeats(eager, fills)):
            return Verdict(Outcome.UNSTABLE, left_out=left_out)
        outcome = Outcome.DIFFERS if hard else Outcome.REFUSED if reasons else Outcome.AGREES
        return Verdict(outcome, hard, tuple(self.soft.values()), reasons, left_out)

    def _fills(self) -> Fills | None:
        """Eager with undefined memory filled in two ways; None if there is none."""
        found, filled = [], 0
        for pattern in (Pattern.PLAIN, Pattern.ODD):
            with undefined_memory(pattern) as mode:
                found.append(_eagerly(self.program, self.device, self.calls))
            filled += mode.filled
            if not filled:
                return None
        return found[0], found[1]

    def _repeats(self, eager: Sequence[Observation], fills: Fills | None) -> bool:
        """Whether eager does the same once more."""
        again = _eagerly(self.program, self.device, self.calls)
        return _stable(eager[: len(again)], again, undefined=fills is not None)

    def _first_difference(
        self, eager: Sequence[Observation], fills: Fills | None
    ) -> tuple[tuple[Difference, ...], str]:
        """The hard differences of the first step that has any, or the reason of a refusal that comes before."""
        references = {o.step: o for o in self._references() or ()}
        one, two = ({o.step: o for o in run} for run in fills or ((), ()))  # under a mode a step may not raise
        steps = _upto(observe(self.program, self.backend.compile, self.device), self.calls)
        for index, compiled in enumerate(steps):
            if compiled.raised is not None and compiled.raised.refusal:
                return (), compiled.raised.refusal
            pair = Pair(
                eager[index],
                compiled,
                (one[compiled.step], two[compiled.step]) if compiled.step in one.keys() & two.keys() else None,
                references.get(compiled.step),
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

    def _references(self) -> Sequence[Observation] | None:
        """The same program in float64, where the program is inexact and means the same there."""
        wide = None if self.exact else widened(self.program)
        return _eagerly(wide, self.device, self.calls) if wide is not None else None

    def _poison(self, before: object) -> Difference | None:
        """What is wrong with the process now, if anything is."""
        wrong = canary()
        if not wrong and global_state() == before:
            return None
        place = Place(Role.PROCESS, call=0, phase=Phase.FORWARD)
        text = wrong or "global state has changed"
        return Difference(OracleKind.POISONING, Severity.HARD, place, "leaves the process as it was", text)


def _grown(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(reason for reason, count in after.items() if count > before.get(reason, 0)))
