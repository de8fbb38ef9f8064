"""The fixpoint of minimizing: passes run in turn until none of them finds a simpler program that still fails."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from aotcheck.minimize.edit import closed
from aotcheck.minimize.passes import PASSES, Pass
from aotcheck.minimize.size import size
from aotcheck.program import Program

__all__ = ["Judge", "Step", "minimize", "steps"]


class Judge(Protocol):
    """Decides which candidates still fail."""

    def first(self, candidates: Iterable[Program]) -> Program | None:
        """The first of ``candidates``, in their order, that still fails; None if none does."""

    @property
    def over(self) -> bool:
        """True if the search must stop: time is up, or the user has asked."""


@dataclass(frozen=True)
class Step:
    """A candidate that was accepted.

    Args:
        program: the candidate.
        made_by: the pass that proposed it.
    """

    program: Program
    made_by: str


def steps(program: Program, judge: Judge) -> Iterator[Step]:
    """Simplify ``program``, one accepted candidate at a time; the last one is minimal unless the judge is over.

    Each step is smaller by :class:`aotcheck.minimize.size.Size` than the one before, so the search ends: when a round
    of all passes has changed nothing. No candidate is judged twice.
    """
    rejected: set[Program] = set()
    changed = True
    while changed and not judge.over:
        changed = False
        for made_by in PASSES:
            while not judge.over:
                # A judge may look ahead, so what was asked for behind the one that it takes has not been judged.
                asked: list[Program] = []
                simpler = judge.first(_candidates(program, made_by, rejected, asked))
                rejected.update(asked if simpler is None else asked[: asked.index(simpler)])
                if simpler is None:
                    break
                program, changed = simpler, True
                yield Step(program, made_by.__name__)


def _candidates(program: Program, made_by: Pass, rejected: set[Program], asked: list[Program]) -> Iterator[Program]:
    """The candidates of a pass that hold together, are simpler, and have not been judged; noted in ``asked``."""
    limit, seen = size(program), set[Program]()
    for candidate in made_by(program):
        if candidate in rejected or candidate in seen:
            continue
        seen.add(candidate)
        if closed(candidate) and size(candidate) < limit:
            asked.append(candidate)
            yield candidate


class _Calls:
    """A judge that asks a predicate, in this process."""

    def __init__(self, still_fails: Callable[[Program], bool]) -> None:
        self._still_fails = still_fails

    def first(self, candidates: Iterable[Program]) -> Program | None:
        return next(filter(self._still_fails, candidates), None)

    @property
    def over(self) -> bool:
        return False


def minimize(program: Program, still_fails: Callable[[Program], bool]) -> Program:
    """The simplest program that the passes can reach from ``program`` and for which ``still_fails`` holds.

    Args:
        program: a program that fails.
        still_fails: the predicate on candidates. Each is well formed: every name is defined before it is read. The
            predicate decides whether eager can run the candidate. Its exceptions are passed on.

    Deterministic if the predicate is, and idempotent: minimizing the result gives the result.
    """
    for step in steps(program, _Calls(still_fails)):
        program = step.program
    return program
