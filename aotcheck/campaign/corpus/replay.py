"""Judges saved scripts again, each in a process of its own, and compares with what their headers expect.

Note [Replay]
    A file may crash, hang, spoil its process or take all its memory without an effect on the next file. Building inputs
    runs ops too, so this process runs nothing of a file, only the workers do. A file that does not do what its header
    expects is judged again, in another fresh process; if it differs one time and not the other, it is flaky.
"""

import contextlib
import os
import shutil
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pebble import ProcessExpired

from aotcheck.backends import BackendError, require_device
from aotcheck.campaign.corpus.files import JUDGED_ON, Entry, Expected, backend_of, entry_of, resolved
from aotcheck.campaign.setup.generate import load_strategy
from aotcheck.campaign.corpus.known import known_as, known_bugs
from aotcheck.campaign.setup.settings import SettingsError
from aotcheck.campaign.findings.signature import KnownBug
from aotcheck.campaign.record.words import Status
from aotcheck.oracle import CoarseKey, OracleKind, Outcome, check, same_key
from aotcheck.program import ProgramSyntaxError, UnknownOpError, build_call, parse_file
from aotcheck.workers import Workers, how_it_ended, imports_of, prepare_process, processes

__all__ = ["Replay", "Replayed", "Status", "exit_status"]

START_ALLOWANCE = 30.0
"""What a fresh process may take to start, over the program's own time."""


@dataclass(frozen=True)
class Judged:
    """The result of one run in a process of its own. ``shows`` is None and ``key`` empty if there is no difference;
    ``rejected`` says why a file could not be judged; ``unfit`` means that the process can run no other program."""

    outcome: Outcome | None = None
    shows: CoarseKey | None = None
    texts: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    rejected: str = ""
    unfit: bool = False

    @property
    def key(self) -> str:
        """The coarse key in words, as headers have it."""
        return "" if self.shows is None else str(self.shows)


@dataclass(frozen=True)
class Replayed:
    """The result of a file on a backend.

    Args:
        path: the file.
        backend: the backend; empty if the file cannot be read.
        status: the result, compared with what was expected.
        judged: the result of the last run.
        text: the same as text.
        issue: where the bug is reported, if the header says.
        expected: what the header expects, if anything.
    """

    path: Path
    backend: str
    status: Status
    judged: Judged
    text: str = ""
    issue: str = ""
    expected: Expected | None = None


def exit_status(found: Iterable[Replayed]) -> int:
    """0: all as expected; 1: something is new, or fixed; 2: a file is no program."""
    statuses = {one.status for one in found}
    if Status.REJECTED in statuses:
        return 2
    return int(any(status.fails for status in statuses))


@dataclass
class _Waiting:
    """A file on a backend, and what its runs have shown so far."""

    entry: Entry
    backend: str
    runs: list[Judged] = field(default_factory=list)
    future: Any = None


class Replay:
    """Judges files, by iterating over :meth:`results`.

    Args:
        paths: the files.
        backends: the backends to judge on; empty for those for which a header has an expectation, or that it names.
        device: as ``torch.device`` takes it.
        jobs: worker processes.
        timeout: seconds that one program may take.
        memory: bytes that one process may take.
        runs: how often each file is judged at least, in a fresh process each time.
        stop: the event that ends the replay when it is set.
        corpus: the folder of known bugs, if there is one: a file without expectations counts as known if a campaign
            would count its difference as known.
        strategies: ``module:attribute`` of strategies; a process imports their modules before it judges a file, since
            they may register ops and subclasses that files name.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        backends: tuple[str, ...] = (),
        device: str = "cpu",
        jobs: int = 1,
        timeout: float = 60.0,
        memory: int = 6 * 2**30,
        runs: int = 1,
        stop: threading.Event | None = None,
        corpus: Path | None = None,
        strategies: tuple[str, ...] = (),
    ) -> None:
        self.paths, self.backends, self.device, self.jobs = tuple(paths), backends, device, jobs
        self.timeout, self.memory, self.runs = timeout, memory, runs
        self.stop = stop or threading.Event()
        self.corpus, self.strategies = corpus, strategies
        self._bugs: dict[str, tuple[KnownBug, ...]] = {}

    def results(self) -> Iterator[Replayed]:
        """The results, in the order of the files: for each as many as there are backends to judge it on."""
        waiting: deque[_Waiting | Replayed] = deque()
        for path in self.paths:
            waiting.extend(self._read(path))
        with self._pool() as pool:
            while waiting and not self.stop.is_set():
                for ahead in list(waiting)[: 2 * self.jobs]:
                    if isinstance(ahead, _Waiting) and ahead.future is None:
                        ahead.future = self._schedule(pool, ahead)
                first = waiting.popleft()
                if isinstance(first, Replayed):
                    yield first
                    continue
                first.runs.append(_result(first.future, self.timeout))
                if self._again(first):
                    first.future = self._schedule(pool, first)
                    waiting.appendleft(first)
                else:
                    yield self._replayed(first)

    def _read(self, path: Path) -> Iterator[_Waiting | Replayed]:
        try:
            parsed = parse_file(path)
            entry = entry_of(path, parsed)
        except (ProgramSyntaxError, UnknownOpError) as error:
            yield _rejected(path, "", str(error))
            return
        except OSError as error:
            yield _rejected(path, "", f"cannot be read: {error.strerror}")
            return
        for backend in self.backends or tuple(entry.expect) or (backend_of(parsed),):
            yield _Waiting(entry, backend)

    @contextlib.contextmanager
    def _pool(self) -> Iterator[Workers]:
        log = Path(tempfile.mkdtemp(prefix="aotcheck-replay-"))
        environment = dict(os.environ)
        os.environ.update({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
        pool = Workers(
            max_workers=self.jobs,
            max_tasks=1,
            initializer=prepare_process,
            initargs=(self.memory, self.device, log),
            context=processes("aotcheck.campaign.corpus.replay", *imports_of(self.backends or JUDGED_ON)),
        )
        try:
            yield pool
        finally:
            pool.stop()
            pool.join()
            os.environ.clear()
            os.environ.update(environment)
            shutil.rmtree(log, ignore_errors=True)

    def _schedule(self, pool: Workers, one: _Waiting) -> Any:
        limit = self.timeout + START_ALLOWANCE
        args = (str(one.entry.path), one.backend, self.device, self.strategies)
        return pool.schedule(judge_file, args=args, timeout=limit)

    def _again(self, one: _Waiting) -> bool:
        """True if the file must run again: it ran less often than asked for, or its result is unexpected and new."""
        last = one.runs[-1]
        if last.rejected or self.stop.is_set():
            return False
        surprising = self._status(one.entry, one.backend, last)[0].fails
        return len(one.runs) < max(self.runs, 2 if surprising else 1)

    def _status(self, entry: Entry, backend: str, judged: Judged) -> tuple[Status, str]:
        """The status of a run, by what its header expects, or if there is no expectation, by the corpus."""
        status, text = _status(entry, backend, judged)
        if status is Status.NEW and judged.shows is not None and entry.expected(backend, torch.__version__) is None:
            name = known_as(judged.shows, entry.program, self._known(backend))
            return (Status.KNOWN, name) if name else (status, text)
        return status, text

    def _known(self, backend: str) -> tuple[KnownBug, ...]:
        if backend not in self._bugs:
            self._bugs[backend] = tuple(known_bugs(self.corpus, backend))
        return self._bugs[backend]

    def _replayed(self, one: _Waiting) -> Replayed:
        last = one.runs[-1]
        if last.rejected:
            return _rejected(one.entry.path, one.backend, last.rejected)
        status, text = self._status(one.entry, one.backend, last)
        shown = Counter((run.outcome, run.key) for run in one.runs)
        if len(shown) > 1:
            counts = ", ".join(
                f"{count}x {outcome.value if outcome else ''}{f' {key}' if key else ''}"
                for (outcome, key), count in shown.most_common()
            )
            status, text = Status.FLAKY, counts
        expected = one.entry.expected(one.backend, torch.__version__)
        return Replayed(one.entry.path, one.backend, status, last, text, one.entry.issue, expected)


def judge_file(path: str, backend: str, device: str, strategies: tuple[str, ...]) -> Judged:
    """Judge a file in this fresh process."""
    try:
        for strategy in strategies:
            load_strategy(strategy)
        parsed, on = parse_file(Path(path)), require_device(device)
        compiled = resolved(parsed, backend)
    except (ProgramSyntaxError, UnknownOpError, BackendError, SettingsError) as error:
        return Judged(rejected=str(error))
    for index, call in enumerate(parsed.program.calls):
        if call.inputs is not None:
            try:
                build_call(parsed.program, index, on)
            except Exception as error:  # whatever torch says of inputs that it cannot build
                return Judged(rejected=f"the inputs of call {index + 1}: {error}")
    verdict = check(parsed.program, compiled, on)
    shows = verdict.hard[0].key if verdict.hard else None
    return Judged(verdict.outcome, shows, tuple(d.text for d in verdict.hard), verdict.refusals, unfit=verdict.poisoned)


def _result(future: Any, timeout: float) -> Judged:
    try:
        found: Judged = future.result()
        return found
    except FutureTimeout:
        kind, how = OracleKind.TIMEOUT, f"no end after {timeout:g} s"
    except ProcessExpired as death:
        kind, how = OracleKind.CRASH, how_it_ended(death.exitcode)
    except Exception as error:  # an oracle that cannot cope
        return Judged(rejected=f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"[:300])
    key = CoarseKey(kind.value, "process", how if kind is OracleKind.CRASH else "")
    return Judged(Outcome.DIFFERS, key, (f"{kind.value} of the process: {how}",), unfit=True)


def _rejected(path: Path, backend: str, text: str) -> Replayed:
    text = " ".join(text.split())
    return Replayed(path, backend, Status.REJECTED, Judged(rejected=text), text)


def _status(entry: Entry, backend: str, judged: Judged) -> tuple[Status, str]:
    """What a run means beside what is expected, and why."""
    expected = entry.expected(backend, torch.__version__)
    key = entry.keys.get(backend, "")
    match judged.outcome:
        case Outcome.UNSTABLE:
            return Status.FLAKY, "eager does not agree with itself"
        case Outcome.AGREES:
            if expected is Expected.DIFFERS:
                return Status.FIXED, f"expected to differ; update {entry.path}"
            return Status.AGREES, ""
        case Outcome.REFUSED:
            reasons = ", ".join(judged.refusals)
            if expected is not None:
                return (
                    Status.NEW,
                    f"expected to {'agree' if expected is Expected.AGREE else 'differ'}; refused: {reasons}",
                )
            return Status.REFUSED, reasons
        case _:
            if expected is not Expected.DIFFERS:
                return Status.NEW, "expected to agree" if expected is Expected.AGREE else ""
            if key and not same_key(key, judged.key):
                return Status.NEW, f"expected {key}"
            return Status.KNOWN, entry.issue or "as expected"
