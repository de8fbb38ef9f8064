"""Minimizes one failing program on a backend, from its first run to the confirmed result."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from aotcheck.minimize.edit import inputs_of, leaves
from aotcheck.minimize.isolated import IsolatedJudge, Limits, workers
from aotcheck.minimize.judging import Judgement, Subject
from aotcheck.minimize.own import Placed
from aotcheck.minimize.passes.ops import calls_with_places
from aotcheck.minimize.primitive import is_primitive_root, may_have_primitive_root, plainer
from aotcheck.minimize.reduce import Step, steps
from aotcheck.minimize.root import is_root, may_cause, roots
from aotcheck.minimize.size import rank_of
from aotcheck.program import Program

__all__ = ["DoesNotFailError", "Reduced", "Reduction", "inputs_passed"]


class DoesNotFailError(Exception):
    """The program to minimize shows no difference here. The message says what it shows."""


@dataclass(frozen=True)
class Reduced:
    """A minimized program.

    Args:
        program: the minimized program.
        shows: its coarse key and difference, in a fresh process.
        finished: whether it is minimal; False if time was up or somebody asked to stop.
        tried: how many candidates were judged.
        seconds: how long it took.
        root: the program that identifies the bug: the op that is wrong by itself, if there is one, else ``program``.
        root_shows: the coarse key and difference of ``root``.
        own: the simple ops of ``program`` that are wrong by themselves, see Note [Own bugs] of
            :mod:`aotcheck.minimize.own`; only found with ``to_root``.
    """

    program: Program
    shows: Judgement
    finished: bool
    tried: int
    seconds: float
    root: Program
    root_shows: Judgement
    own: frozenset[str] = frozenset()


def inputs_passed(program: Program) -> int:
    """The most arguments, containers opened, that a call of ``program`` passes."""
    return max(sum(1 for arg in inputs.args for _ in leaves(arg)) for _, inputs in inputs_of(program))


class Reduction:
    """A minimization of ``program``, which :meth:`steps` runs; the attributes say how far it is.

    Args:
        program: the program to minimize.
        subject: the backend on which it fails.
        limits: the time and memory that it may take.
        stop: the event that stops it, with the result so far.
        to_root: whether the result may show another key than the original, see Note [Roots] of
            :mod:`aotcheck.minimize.root` and Note [Primitives] of :mod:`aotcheck.minimize.primitive`.
    """

    def __init__(
        self,
        program: Program,
        subject: Subject,
        limits: Limits,
        stop: threading.Event | None = None,
        to_root: bool = False,
    ) -> None:
        self.original = self.program = program
        self.to_root = to_root
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
        """Minimize, one accepted candidate at a time; afterwards ``result`` is set.

        Raises:
            DoesNotFailError: the program shows no difference.
        """
        stretches: list[_Stretch] = []
        with workers(self.subject, self.limits) as pool:
            judge = self._judge = IsolatedJudge(pool, self.subject, self.limits, self._stop)
            target = judge.judgement(self.original)
            if target.key is None:
                raise DoesNotFailError(target.text)
            start: _Stretch | None = _Stretch(target, [self.original])
            while start is not None:
                stretches.append(start)
                judge.target, self.key = start.target, str(start.target.key)
                judge.current = start.programs[0]
                for step in steps(start.programs[0], judge):
                    self.program = judge.current = step.program
                    start.programs.append(step.program)
                    yield step
                start = self._deeper(judge, stretches) if self.to_root else None
            own = frozenset(self._own(judge, stretches)) if self.to_root else frozenset()
            finished = not judge.over
        self.program, shows = self._confirmed([s for s in stretches if not s.primitive])
        root, root_shows = self._confirmed(stretches) if stretches[-1].primitive else (self.program, shows)
        self.result = Reduced(self.program, shows, finished, judge.tried, self.seconds, root, root_shows, own)

    def _deeper(self, judge: IsolatedJudge, stretches: list[_Stretch]) -> _Stretch | None:
        """What is nearer to the cause than the last minimal program: each kind of root once, beginnings first."""
        last = stretches[-1]
        if last.primitive:
            return None
        found = self._root(judge, last) if len(stretches) == 1 else None
        return found or self._primitive(judge, last)

    def _own(self, judge: IsolatedJudge, stretches: list[_Stretch]) -> Iterator[str]:
        """The simple ops of the minimal program that are wrong by themselves, as no others of their kind are."""
        last = [stretch for stretch in stretches if not stretch.primitive][-1]
        judge.target = last.target
        for at, index, call in calls_with_places(last.programs[-1]):
            if not judge.over and rank_of(call.path) == 0 and judge.is_own(Placed(at, index, call), last.programs[-1]):
                yield call.path

    def _primitive(self, judge: IsolatedJudge, minimal: _Stretch) -> _Stretch | None:
        """The first op that is wrong by itself, on plain operands if it is wrong there too."""
        target = minimal.target
        if target.eager is None or target.key is None or not may_have_primitive_root(target.key):
            return None
        for alone in judge.primitives(minimal.programs[-1]):
            shown = self._wrong_alone(judge, alone, minimal)
            if shown is not None:
                plain = (self._wrong_alone(judge, program, minimal) for program in plainer(alone))
                return next((found for found in plain if found is not None), shown)
        return None

    def _wrong_alone(self, judge: IsolatedJudge, program: Program, minimal: _Stretch) -> _Stretch | None:
        if judge.over:
            return None
        found, target = judge.judgement(program), minimal.target
        assert target.key is not None and target.eager is not None
        if found.key is None or found.eager is None or not is_primitive_root(found.key, target.key):
            return None
        if not may_cause(found.key, target.key, minimal.programs[-1]):
            return None
        return _Stretch(found, [program], primitive=True) if target.eager.allows(found.eager) else None

    def _root(self, judge: IsolatedJudge, minimal: _Stretch) -> _Stretch | None:
        """Where the minimal program goes wrong first, if that is another program under another key."""
        allowed, target = minimal.target.eager, minimal.target.key
        assert target is not None
        for program in roots(minimal.programs[-1]):
            if judge.over:
                break
            found = judge.judgement(program)
            if found.key is None or found.key == target or found.eager is None or allowed is None:
                continue
            if is_root(found.key, target, minimal.programs[-1]) and allowed.allows(found.eager):
                return _Stretch(found, [program])
        return None

    def _confirmed(self, stretches: list[_Stretch]) -> tuple[Program, Judgement]:
        """The last program that shows its stretch's key in a process that has run nothing else; at worst the first."""
        with workers(self.subject, Limits(1, self.limits.timeout, self.limits.memory), max_tasks=1) as pool:
            judge = IsolatedJudge(pool, self.subject, self.limits, threading.Event())
            for stretch in reversed(stretches):
                for program in reversed(stretch.programs):
                    shown = judge.judgement(program)
                    if shown.key == stretch.target.key:
                        return program, shown
        return self.original, stretches[0].target


@dataclass(frozen=True)
class _Stretch:
    """Programs that show one key, each simpler than the one before."""

    target: Judgement
    programs: list[Program]
    primitive: bool = False
