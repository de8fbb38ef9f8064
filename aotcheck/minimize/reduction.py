"""One failing program minimized on a backend, from the first look at it to the confirmed result."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from aotcheck.minimize.edit import inputs_of, leaves
from aotcheck.minimize.isolated import IsolatedJudge, Limits, workers
from aotcheck.minimize.judging import Judgement, Subject
from aotcheck.minimize.reduce import Step, steps
from aotcheck.program import Program

__all__ = ["DoesNotFailError", "Reduced", "Reduction", "inputs_passed"]


class DoesNotFailError(Exception):
    """The program to minimize shows no difference here. The message says what it shows."""


@dataclass(frozen=True)
class Reduced:
    """A minimized program.

    Args:
        program: it.
        shows: its coarse key and difference, as a fresh process saw them.
        finished: whether it is minimal; False where time was up or somebody asked to stop.
        tried: how many candidates were judged.
        seconds: how long it took.
    """

    program: Program
    shows: Judgement
    finished: bool
    tried: int
    seconds: float


def inputs_passed(program: Program) -> int:
    """The most arguments, containers opened, that a call of ``program`` passes."""
    return max(sum(1 for arg in inputs.args for _ in leaves(arg)) for _, inputs in inputs_of(program))


class Reduction:
    """Minimizing ``program``, told step by step by :meth:`steps`; the attributes say how far it is.

    Args:
        program: what to minimize.
        subject: the backend that it fails on.
        limits: what may be spent.
        stop: set it to stop with what there is.
    """

    def __init__(self, program: Program, subject: Subject, limits: Limits, stop: threading.Event | None = None) -> None:
        self.original = self.program = program
        self.subject, self.limits = subject, limits
        self.key = ""
        self.result: Reduced | None = None
        self._stop = stop or threading.Event()
        self._began = time.monotonic()
        self._judge: IsolatedJudge | None = None

    @property
    def tried(self) -> int:
        """How many candidates have been judged so far."""
        return self._judge.tried if self._judge is not None else 0

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self._began

    def steps(self) -> Iterator[Step]:
        """Minimize; afterwards ``result`` is there.

        Raises:
            DoesNotFailError: the program shows no difference.
        """
        history = [self.original]
        with workers(self.subject, self.limits) as pool:
            judge = self._judge = IsolatedJudge(pool, self.subject, self.limits, self._stop)
            target = judge.target = judge.judgement(self.original)
            if target.key is None:
                raise DoesNotFailError(target.text)
            self.key = str(target.key)
            for step in steps(self.original, judge):
                self.program = step.program
                history.append(step.program)
                yield step
            finished = not judge.over
        self.program, shows = self._confirmed(history, target)
        self.result = Reduced(self.program, shows, finished, judge.tried, self.seconds)

    def _confirmed(self, history: list[Program], target: Judgement) -> tuple[Program, Judgement]:
        """The last program that shows the target's key in a process that has run nothing else; at worst the first."""
        with workers(self.subject, Limits(1, self.limits.timeout, self.limits.memory), max_tasks=1) as pool:
            judge = IsolatedJudge(pool, self.subject, self.limits, threading.Event())
            for program in reversed(history):
                shown = judge.judgement(program)
                if shown.key == target.key:
                    return program, shown
        return self.original, target
