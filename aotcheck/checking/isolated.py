"""Runs a check in worker processes: a crash or a hang ends one variation and not the check.

The function, its arguments and the backend are passed by name, since workers import them themselves.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from aotcheck.backends import require_device, resolve
from aotcheck.checking.check import judged, spoils_the_process
from aotcheck.checking.quiet import quiet
from aotcheck.checking.report import AS_GIVEN, Report, Result, Standing
from aotcheck.checking.schemas import schema_lies
from aotcheck.checking.specs import function_named, inputs_named
from aotcheck.checking.subject import Subject, as_subject
from aotcheck.checking.variations import VARIATIONS
from aotcheck.workers import POISONED, how_it_ended, imports_of, prepare_process, processes

__all__ = ["Task", "check_isolated"]

START_ALLOWANCE = 30.0
"""Seconds that a fresh process may take to import torch and the function, over a variation's own time."""

MAX_HANGS = 3
"""After this many variations that hang, the others are not tried."""


@dataclass(frozen=True)
class Task:
    """The function to check, and on what.

    Args:
        function: ``module:attribute`` of the function.
        inputs: ``module:attribute`` of the maker of its arguments, or a line that describes them.
        backend: as ``backends.resolve`` takes it.
        device: as ``torch.device`` takes it.
        exact: whether values must be equal bitwise.
    """

    function: str
    inputs: str
    backend: str
    device: str
    exact: bool


# -- in a worker

_spoilt = False
"""Whether a variation has left this process so that no other may run in it."""


@cache
def _subject(function: str, inputs: str, device: str) -> Subject:
    return as_subject(function_named(function), inputs_named(inputs, device))


def judge_variation(task: Task, name: str, backend: str) -> Result:
    """What a variation shows on a backend."""
    global _spoilt
    if _spoilt:
        os._exit(POISONED)
    subject = _subject(task.function, task.inputs, task.device)
    with quiet():
        result = judged(subject, VARIATIONS[name], resolve(backend), require_device(task.device), task.exact)
    _spoilt = spoils_the_process(result)
    return result


def find_lies(task: Task) -> tuple[str, ...]:
    """What custom ops do that their schemas deny."""
    subject = _subject(task.function, task.inputs, task.device)
    with quiet():
        return schema_lies(subject, VARIATIONS[AS_GIVEN], require_device(task.device))


# -- in the process that was asked


def check_isolated(
    task: Task,
    names: Sequence[str],
    *,
    jobs: int,
    timeout: float,
    memory: int,
    judged: Callable[[str], None] = lambda name: None,
) -> Report:
    """Judge variations in worker processes.

    Args:
        task: what is checked.
        names: the variations, of ``VARIATIONS``.
        jobs: how many worker processes.
        timeout: seconds that one variation may take.
        memory: bytes that one worker may take.
        judged: is told the name of each variation that has been judged.
    """
    with tempfile.TemporaryDirectory() as log:
        pool = ProcessPool(
            max_workers=jobs,
            initializer=prepare_process,
            initargs=(memory, task.device, Path(log)),
            context=processes("aotcheck.checking.isolated", *imports_of([task.backend])),
        )
        with pool:
            try:
                run = _Run(task, pool, timeout)
                results = run.results(names, judged)
                lies = run.lies() if not any(r.standing is Standing.EAGER_FAILS for r in results) else ()
            finally:
                pool.stop()
    name = task.function.partition(":")[2]
    return Report(name, resolve(task.backend).name, tuple(results), lies, len(names) - len(results))


class _Run:
    """A check under way."""

    def __init__(self, task: Task, pool: ProcessPool, timeout: float) -> None:
        self.task, self.pool, self.timeout = task, pool, timeout
        self.hangs = 0

    def results(self, names: Sequence[str], judged: Callable[[str], None]) -> list[Result]:
        """What variations show, in their order; fewer than were asked for where too many had no end."""
        found: list[Result] = []
        first, rest = names[:1], names[1:]
        for some in (first, rest):  # where eager fails as given, no other variation is worth its time
            for name, future in [(name, self._sent(name, self.task.backend)) for name in some]:
                if self.hangs >= MAX_HANGS:
                    return found
                found.append(self._result(name, future))
                judged(name)
            if found and found[-1].standing is Standing.EAGER_FAILS and some is first:
                break
        return found

    def lies(self) -> tuple[str, ...]:
        """What custom ops do that their schemas deny; nothing where looking ends the process."""
        future = self.pool.schedule(find_lies, args=(self.task,), timeout=self.timeout + START_ALLOWANCE)
        try:
            lies: tuple[str, ...] = future.result()
        except (TimeoutError, ProcessExpired):
            return ()
        return lies

    def _sent(self, name: str, backend: str) -> ProcessFuture[Result]:
        limit = self.timeout + START_ALLOWANCE
        return self.pool.schedule(judge_variation, args=(self.task, name, backend), timeout=limit)

    def _result(self, name: str, future: ProcessFuture[Result]) -> Result:
        how = self._how_it_ended(future)
        while how == how_it_ended(POISONED):  # the variation before this one had spoilt the process
            future = self._sent(name, self.task.backend)
            how = self._how_it_ended(future)
        if not how:
            result: Result = future.result()
            return result
        alone = self._sent(name, "eager")
        if said := self._how_it_ended(alone):
            return Result(VARIATIONS[name], Standing.EAGER_FAILS, reason=f"eager's process: {said}")
        return Result(VARIATIONS[name], Standing.DIFFERS, reason=f"the process ends, where eager's goes on: {how}")

    def _how_it_ended(self, future: ProcessFuture[Result]) -> str:
        """Why there is no result; empty where there is one."""
        try:
            future.result()
        except TimeoutError:
            self.hangs += 1
            return f"no end after {self.timeout + START_ALLOWANCE:g} s"
        except ProcessExpired as error:
            return how_it_ended(error.exitcode)
        return ""
