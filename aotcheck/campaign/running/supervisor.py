"""The engine: gives blocks to workers, watches them, and turns what happens into events."""

import os
import platform
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import hypothesis
import torch
from pebble import ProcessExpired

from aotcheck.campaign.corpus.known import known_bugs
from aotcheck.campaign.record.coverage import Coverage
from aotcheck.campaign.record.events import (
    BlockFailed,
    Ending,
    Event,
    FindingRechecked,
    FindingWritten,
    Reproduced,
    RunFinished,
    RunResumed,
    RunStarted,
    ScriptRun,
    Shown,
    WorkerDied,
)
from aotcheck.campaign.record.resume import Past
from aotcheck.campaign.results.bugs import Signatures
from aotcheck.campaign.results.triage import Triage
from aotcheck.campaign.running.baseline import Baselines
from aotcheck.campaign.running.crew import Crew
from aotcheck.campaign.running.deaths import Deaths
from aotcheck.campaign.running.flight import Flight
from aotcheck.campaign.running.scripts import Scripts
from aotcheck.campaign.running.worker import Task, recheck, run_task
from aotcheck.campaign.setup.declared import floors_by, undrawn_by
from aotcheck.campaign.setup.settings import BLOCK_SIZE, Settings
from aotcheck.oracle import CoarseKey, OracleKind
from aotcheck.workers import POISONED, Workers, how_it_ended, imports_of, prepare_process, processes

POLL_SECONDS = 0.05
GRACE_SECONDS = 10.0
"""How long blocks in flight may still run once the time is up."""

AGAIN_GRACE_SECONDS = 60.0
"""How long findings may still be run again once the time is up."""

START_ALLOWANCE = 60.0
"""What a fresh process may take to import torch, over the program's own time."""

MAX_LOST = 10
"""How often workers of a block may die before any program of it has run."""

MAX_FAILURES = 3
"""After this many blocks in a row that could not run at all, the campaign gives up."""


class Campaign:
    """A campaign, run by iterating over :meth:`events`.

    Args:
        settings: what to run.
        stop: the event that ends the campaign when it is set; findings are kept.
        past: the run's results from before it was interrupted.
    """

    def __init__(self, settings: Settings, stop: threading.Event, past: Past | None = None) -> None:
        self.settings, self.stop = settings, stop
        self._past = past or Past()
        self._flights: list[Flight] = []
        self._again: list[Task] = []
        self._next_block = settings.first_block
        self._left = settings.examples
        self._failures = 0
        self._attempts = 0
        self._deaths = Deaths(settings)
        self._lost: Counter[int] = Counter()
        self._coverage = Coverage(undrawn_by(settings.strategy))
        for event in self._past.events:
            self._coverage.feed(event)
        self._shown_again: set[CoarseKey] = set(self._past.rerun)
        self._rechecks: dict[CoarseKey, tuple[str, Any]] = {}
        limit = settings.timeout + START_ALLOWANCE
        self._scripts = Scripts(
            settings.backend, settings.device, settings.jobs, limit, settings.journals, settings.script_seconds
        )

    def events(self) -> Iterator[Event]:
        """Run the campaign. The last event is :class:`RunFinished`, whatever happens."""
        began = time.monotonic()
        self.settings.make_folders()
        if self._past.started is None:
            yield _run_started(self.settings)
        else:
            yield RunResumed(self._past.programs, datetime.now(UTC).isoformat(timespec="seconds"))
        folders = (self.settings.corpus, self.settings.remembered)
        known = [bug for folder in folders for bug in known_bugs(folder, self.settings.backend)]
        triage = Triage(self.settings, known, self.stop)
        for event in self._past.events:
            triage.feed(event)
        baselines = Baselines(self.settings, self.stop, self._past.events)
        deadline = began + self.settings.seconds if self.settings.seconds is not None else None
        environment = dict(os.environ)
        os.environ.update({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
        ending = Ending.INFRASTRUCTURE
        try:
            with Crew(self._one_worker, self.settings.jobs) as crew, self._pool(1) as fresh:
                try:
                    for event in baselines.sifted(chain(self._past.untold, self._loop(crew, deadline))):
                        self._coverage.feed(event)
                        yield event
                        self._run_again(fresh, event)
                        triage.feed(event)
                    ending = self._ending(deadline)
                    for event in self._rechecked(deadline):
                        yield event
                        self._run_again(fresh, event)
                finally:
                    self._scripts.close()
                    crew.stop()
                    fresh.stop()
            if self.settings.minimize_seconds and ending is not Ending.INFRASTRUCTURE:
                signed = Signatures(self.settings, self._past.events)
                for event in triage.events():
                    signed.feed(event)
                    yield event
                yield from signed.reports(self.stop)
                ending = Ending.INTERRUPTED if self.stop.is_set() else ending
        finally:
            os.environ.clear()
            os.environ.update(environment)
            shutil.rmtree(self.settings.journals, ignore_errors=True)
        yield self._coverage.counted()
        yield RunFinished(ending, time.monotonic() - began)

    def _one_worker(self) -> Workers:
        return self._pool(0, 1)

    def _pool(self, max_tasks: int, workers: int | None = None) -> Workers:
        """Worker processes; with ``max_tasks`` 1 each task has a process of its own."""
        settings = self.settings
        return Workers(
            max_workers=workers or settings.jobs,
            max_tasks=max_tasks,
            initializer=prepare_process,
            initargs=(settings.memory, settings.device, settings.journals),
            context=processes("hypothesis", "aotcheck.campaign.running.worker", *imports_of([settings.backend])),
        )

    def _ending(self, deadline: float | None) -> Ending:
        if self.stop.is_set():
            return Ending.INTERRUPTED
        if self._failures >= MAX_FAILURES:
            return Ending.INFRASTRUCTURE
        return Ending.TIME if deadline is not None and time.monotonic() >= deadline else Ending.DONE

    # -- the loop

    def _loop(self, crew: Crew, deadline: float | None) -> Iterator[Event]:
        while not self.stop.is_set() and self._failures < MAX_FAILURES:
            late = deadline is not None and time.monotonic() >= deadline
            while not late and len(self._flights) < self.settings.jobs and (task := self._next_task()) is not None:
                self._flights.append(self._sent(crew, task))
            if not self._flights or (late and deadline is not None and time.monotonic() > deadline + GRACE_SECONDS):
                break
            for flight in list(self._flights):
                over = flight.future.done()  # asked first: what it wrote before it was over is then read for sure
                yield from self._news(flight)
                flight.enforce()
                if over:
                    self._flights.remove(flight)
                    how, error = _how_it_ended(flight)
                    crew.over(flight.future, alive=how is None)
                    yield from self._landed(flight, how, error)
            yield from self._scripts.poll()
            time.sleep(POLL_SECONDS)
        for flight in self._flights:
            yield from self._news(flight)
            flight.future.cancel()
        yield from self._deaths.left()

    def _news(self, flight: Flight) -> Iterator[Event]:
        for event in flight.news():
            yield event
            yield from self._deaths.cleared(event)

    def _next_task(self) -> Task | None:
        settings = self.settings
        self._attempts += 1
        if self._again:
            task = self._again.pop()
            return replace(task, journal=settings.journals / f"{task.block:06d}-{self._attempts}.jsonl")
        while self._left is None or self._left > 0:
            under_way = {flight.task.block for flight in self._flights}
            if not self._coverage.ready(self._next_block, under_way):
                return None
            programs = BLOCK_SIZE if self._left is None else min(BLOCK_SIZE, self._left)
            if self._left is not None:
                self._left -= programs
            block, self._next_block = self._next_block, self._next_block + 1
            skip = self._past.done.get(block, frozenset())
            if len(skip) < programs:
                return self._task(block, skip, programs)
        return None

    def _task(self, block: int, skip: frozenset[int], programs: int) -> Task:
        settings = self.settings
        return Task(
            strategy=settings.strategy,
            backend=settings.backend,
            device=settings.device,
            seed=settings.seed,
            block=block,
            skip=skip,
            programs=programs,
            journal=settings.journals / f"{block:06d}-{self._attempts}.jsonl",
            findings=settings.findings,
            wanted=self._coverage.wanted(block),
            expectations=settings.expectations,
        )

    def _sent(self, crew: Crew, task: Task) -> Flight:
        return Flight(task, crew.schedule(run_task, task), self.settings.timeout, self.settings.memory)

    def _landed(self, flight: Flight, how: str | None, error: str | None) -> Iterator[Event]:
        """What a block that is over means: done, dead with a culprit, dead without one."""
        task = flight.task
        done = task.skip | flight.done | flight.repeated
        if how is None and error is None:
            self._failures = 0
            flight.reader.discard()
            if len(done) < task.programs and self._lost[task.block] < MAX_LOST:  # its journal was garbled
                self._lost[task.block] += 1
                self._again.append(replace(task, skip=frozenset(done)))
            return
        if error is not None:
            self._failures += 1
            yield BlockFailed(task.block, error)
            return
        assert how is not None
        culprit = flight.running
        if culprit is not None and flight.killed is None and self._deaths.suspect(flight, culprit, how):
            yield WorkerDied(task.block, culprit, how)  # see Note [Suspects] in deaths.py
        elif culprit is not None:
            yield from self._deaths.finding(flight, culprit, how)
            done |= {culprit}
        elif not flight.done and how != _POISONED:
            self._lost[task.block] += 1
            if self._lost[task.block] >= MAX_LOST:
                self._failures += 1
                yield BlockFailed(task.block, f"the worker ended before any program ran: {how}")
                return
            yield WorkerDied(task.block, None, how)
        else:
            yield WorkerDied(task.block, None, how)
        self._failures = 0
        flight.reader.discard()
        if len(done) < task.programs:
            self._again.append(replace(task, skip=frozenset(done)))

    # -- findings again, each in a process of its own

    def _run_again(self, fresh: Workers, event: Event) -> None:
        """Run the script of the first finding of each coarse key as a user would. If it shows no difference, the
        oracles judge the program again: either the script is at fault, or the finding is flaky."""
        match event:
            case FindingWritten(key=key, path=path) if key not in self._shown_again:
                self._shown_again.add(key)
                if key.oracle == OracleKind.MEMORY.value:  # nobody runs that without a limit
                    self._recheck(fresh, key, path)
                else:
                    self._scripts.add(event)
            case ScriptRun(key=key, path=path, shown=shown) if shown is not Shown.YES:
                self._recheck(fresh, key, path)
            case _:
                pass

    def _recheck(self, fresh: Workers, key: CoarseKey, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            source = file.read()
        arguments = (source, self.settings.backend, self.settings.device, key)
        limit = self.settings.timeout + START_ALLOWANCE
        self._rechecks[key] = (path, fresh.schedule(recheck, args=arguments, timeout=limit))

    def _rechecked(self, deadline: float | None) -> Iterator[Event]:
        """Wait for what findings show when they are run again."""
        while (self._rechecks or self._scripts.busy) and not self.stop.is_set():
            for key, (path, future) in list(self._rechecks.items()):
                if future.done():
                    del self._rechecks[key]
                    yield FindingRechecked(path, key, _reproduced(key, future))
            yield from self._scripts.poll()
            if deadline is not None and time.monotonic() > deadline + AGAIN_GRACE_SECONDS:
                break
            time.sleep(POLL_SECONDS)


_POISONED = "poisoned"


def _how_it_ended(flight: Flight) -> tuple[str | None, str | None]:
    """How the worker died, or what error it raised; neither if the block is done."""
    limits = {OracleKind.TIMEOUT: f"no end after {flight.timeout:g} s", OracleKind.MEMORY: "too much memory"}
    try:
        error = flight.future.exception(timeout=0)  # not raised here: it may be SystemExit
    except (CancelledError, FutureTimeout) as over:
        error = over
    match error:
        case None:
            return None, None
        case CancelledError() | FutureTimeout():
            return (limits[flight.killed] if flight.killed else "cancelled"), None
        case ProcessExpired():
            return (_POISONED if error.exitcode == POISONED else how_it_ended(error.exitcode)), None
        case BrokenProcessPool():  # its worker died with a lock in its hands
            return "its pool broke", None
        case _:  # raised by our own code in the worker
            return None, f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _reproduced(key: CoarseKey, future: Any) -> Reproduced:
    try:
        found = future.result()
    except Exception:  # died or hung again, or its script cannot even be run
        died = key.oracle in {OracleKind.CRASH.value, OracleKind.TIMEOUT.value, OracleKind.MEMORY.value}
        return Reproduced.SAME if died else Reproduced.DIED
    if found is None:
        return Reproduced.GONE
    # Out of address space before the supervisor looked: torch's allocator then raises instead.
    memory = key.oracle == OracleKind.MEMORY.value and found.oracle == OracleKind.EXCEPTION.value
    return Reproduced.SAME if found == key or memory else Reproduced.OTHER


def _run_started(settings: Settings) -> RunStarted:
    versions = {"torch": torch.__version__, "hypothesis": hypothesis.__version__, "python": platform.python_version()}
    return RunStarted(
        backend=settings.backend,
        device=settings.device,
        seed=settings.seed,
        examples=settings.examples,
        seconds=settings.seconds,
        jobs=settings.jobs,
        timeout=settings.timeout,
        memory=settings.memory,
        baselines=settings.baselines,
        block_size=BLOCK_SIZE,
        strategy=settings.strategy,
        floors=floors_by(settings.strategy),
        expectations=settings.expectations,
        versions=versions,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )
