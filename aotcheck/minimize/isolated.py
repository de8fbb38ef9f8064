"""Judges candidates in processes that may die: a crash or a hang is an outcome with a key of its own."""

import os
import shutil
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from pebble import ProcessExpired

from aotcheck.backends import require_device
from aotcheck.minimize.judging import Eager, Judgement, Subject, eager_behaviour, judge
from aotcheck.minimize.own import Placed, alone, brought_in, explains, is_shared, name_of
from aotcheck.minimize.primitive import primitives
from aotcheck.oracle import CoarseKey, OracleKind
from aotcheck.program import Program, ProgramSyntaxError, emit, flat_calls, parse
from aotcheck.workers import POISONED, Workers, how_it_ended, imports_of, prepare_process, processes

__all__ = ["IsolatedJudge", "Limits", "outcome_of", "workers"]


@dataclass(frozen=True)
class Limits:
    """The limits of minimizing.

    Args:
        jobs: worker processes.
        timeout: seconds that one candidate may take; one that takes longer has the key of a hang.
        memory: bytes, for one worker.
        seconds: for all candidates together; None for no limit.
    """

    jobs: int = 1
    timeout: float = 30.0
    memory: int = 6 * 2**30
    seconds: float | None = None


@contextmanager
def workers(subject: Subject, limits: Limits, max_tasks: int = 0) -> Iterator[Workers]:
    """A pool of worker processes; with ``max_tasks`` 1 each program has a process of its own."""
    log = Path(tempfile.mkdtemp(prefix="aotcheck-minimize-"))
    environment = dict(os.environ)
    os.environ.update({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
    pool = Workers(
        max_workers=limits.jobs,
        max_tasks=max_tasks,
        initializer=prepare_process,
        initargs=(limits.memory, subject.device, log),
        context=processes("aotcheck.minimize.judging", *imports_of([subject.backend])),
    )
    try:
        yield pool
    finally:
        pool.stop()
        pool.join()
        os.environ.clear()
        os.environ.update(environment)
        shutil.rmtree(log, ignore_errors=True)


class IsolatedJudge:
    """Says whether programs show a key, each run in a worker of ``pool``.

    Args:
        pool: from :func:`workers`.
        subject: what to run programs on.
        limits: the time and memory that they may take.
        stop: the event that ends the search when it is set.
    """

    def __init__(self, pool: Workers, subject: Subject, limits: Limits, stop: threading.Event) -> None:
        self.subject, self.limits = subject, limits
        self.tried = 0
        self.target: Judgement | None = None
        self.current: Program | None = None
        self._seen: dict[Program, Judgement] = {}
        self._pool, self._stop = pool, stop
        self._deadline = None if limits.seconds is None else time.monotonic() + limits.seconds
        self._ahead: dict[Program, Any] = {}

    @property
    def over(self) -> bool:
        """True if time is up or ``stop`` is set."""
        return self._stop.is_set() or (self._deadline is not None and time.monotonic() >= self._deadline)

    def judgement(self, program: Program) -> Judgement:
        """What ``program`` shows. If there is a key and the worker died, another worker finds out how eager behaves."""
        found = self._own(program, self._outcome(program, self.subject, self._ahead.pop(program, None)))
        if found.key is not None and found.eager is None:
            eager = self._eager(program)
            return Judgement(None, "eager does not survive it") if eager is None else replace(found, eager=eager)
        return found

    def primitives(self, program: Program) -> list[Program]:
        """The ops of ``program``, each a program of its own; see :mod:`aotcheck.minimize.primitive`."""
        try:
            found: list[Program] = self._schedule(primitives_of, program).result()
        except Exception:  # the worker died of it, or eager does not survive it: then there are none
            return []
        return found

    def first(self, candidates: Iterable[Program]) -> Program | None:
        """The first candidate that shows the target's key, by :meth:`shows`.

        Each worker runs one candidate at a time, but the answer is the first one in order, so the number of workers
        changes only the time.
        """
        rest = iter(candidates)
        window: deque[Program] = deque()
        while not self.over:
            for candidate in islice(rest, self.limits.jobs - len(window)):
                if candidate not in self._ahead:
                    self._ahead[candidate] = self._schedule(judge, candidate)
                window.append(candidate)
            if not window:
                return None
            candidate = window.popleft()
            self.tried += 1
            if self.shows(candidate):
                return candidate
        return None

    def shows(self, program: Program) -> bool:
        """True if ``program`` shows the target's key, is valid, can be written as a script, and brings in no op with a
        bug of its own (Note [Own bugs] of :mod:`aotcheck.minimize.own`)."""
        if not self._shows_key(program) or not _can_be_written(program):
            return False
        new = [] if self.current is None else brought_in(program, self.current)
        return not any(self.is_own(placed, program) for placed in new)

    def is_own(self, placed: Placed, program: Program) -> bool:
        """True if one op of ``program``, and no other op of its kind, causes the target's key."""
        if not any(self._is_guilty(one) for one in self._alone(placed, program)):
            return False
        return not is_shared(placed, program, self._shows_key)

    def _alone(self, placed: Placed, program: Program) -> Iterator[Program]:
        yield from alone(placed.call, program)
        name = name_of(placed.call)
        for one in self.primitives(program):
            if any(name_of(call) == name for call in flat_calls(one.body)):
                yield one

    def _is_guilty(self, program: Program) -> bool:
        found, target = self._once(program), self.target
        if found.key is None or found.eager is None or target is None or target.key is None or target.eager is None:
            return False
        return target.eager.allows(found.eager) and explains(found.key, target.key)

    def _shows_key(self, program: Program) -> bool | None:
        """Whether ``program`` shows the target's key; None where eager does not do it, or not as the target."""
        assert self.target is not None and self.target.eager is not None
        found = self.judgement(program)
        if found.eager is None or not self.target.eager.allows(found.eager):
            return None
        return found.key == self.target.key

    def _once(self, program: Program) -> Judgement:
        if program not in self._seen:
            self._seen[program] = self.judgement(program)
        return self._seen[program]

    def _own(self, program: Program, found: Judgement) -> Judgement:
        """What ``program`` shows that no baseline shows too, each asked apart, since it may die of it."""
        if found.key is None or not self.subject.baselines:
            return found
        theirs: set[CoarseKey] = set()
        for name in self.subject.baselines:
            theirs |= {key for key, _ in self._outcome(program, self.subject.beside(name)).shown}
        own = [(key, text) for key, text in found.shown if key not in theirs]
        if not own:
            return Judgement(None, f"also in {', '.join(self.subject.baselines)}: {found.text}", found.eager)
        return Judgement(*own[0], found.eager, tuple(own))

    def _schedule(self, function: Callable[..., Any], program: Program, subject: Subject | None = None) -> Any:
        return self._pool.schedule(function, args=(program, subject or self.subject), timeout=self.limits.timeout)

    def _outcome(self, program: Program, subject: Subject, future: Any = None) -> Judgement:
        while True:
            found = outcome_of(future or self._schedule(judge, program, subject), self.limits.timeout)
            if found is not None:
                return found
            future = None

    def _eager(self, program: Program) -> Eager | None:
        try:
            found: Eager = self._schedule(eager_behaviour, program).result()
            return found
        except (FutureTimeout, ProcessExpired):
            return None


def outcome_of(future: Any, timeout: float) -> Judgement | None:
    """A worker's answer about a program, or how the worker died of it; None if it died of the program before."""
    try:
        found: Judgement = future.result()
        return found
    except FutureTimeout:
        return _death(OracleKind.TIMEOUT, f"no end after {timeout:g} s")
    except ProcessExpired as death:
        return None if death.exitcode == POISONED else _death(OracleKind.CRASH, how_it_ended(death.exitcode))
    except Exception as error:  # inputs that cannot be built, an oracle that cannot cope
        return Judgement(None, f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"[:200])


def primitives_of(program: Program, subject: Subject) -> list[Program]:
    """The task of a worker for :meth:`IsolatedJudge.primitives`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return primitives(program, require_device(subject.device))


def _death(kind: OracleKind, how: str) -> Judgement:
    key = CoarseKey(kind.value, "process", how if kind is OracleKind.CRASH else "")
    text = f"{kind.value} of the worker: {how}"
    return Judgement(key, text, shown=((key, text),))


def _can_be_written(program: Program) -> bool:
    """Whether the script of ``program`` is read back as ``program``."""
    try:
        return parse(emit(program)).program == program
    except ProgramSyntaxError:
        return False
