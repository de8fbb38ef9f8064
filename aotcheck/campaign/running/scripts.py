"""Runs scripts of findings as a user runs them: ``python script.py``, each in another process.

A finding is only worth reporting if its script shows the difference. So the first script of each coarse key runs, and
its result is an event like any other.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aotcheck.campaign.record.events import FindingWritten, ScriptRun, Shown
from aotcheck.oracle import OracleKind
from aotcheck.workers import end_group

SHARE = 0.1
"""The part of a run's time that scripts may take, unless something else is asked for."""

LEAST_SECONDS = 30.0
"""What scripts may take of a short run."""

_DEATHS = frozenset({OracleKind.CRASH.value, OracleKind.TIMEOUT.value})


@dataclass(frozen=True)
class _Running:
    finding: FindingWritten
    process: subprocess.Popen[bytes]
    output: Path
    since: float


class Scripts:
    """A queue of scripts, of which ``jobs`` run at a time.

    Args:
        backend: the backend that the scripts compare with.
        device: the device they run on.
        jobs: how many run at a time.
        limit: seconds that one script may take.
        seconds: how long all scripts together may run; None for a tenth of the time since the run began, but at least
            ``LEAST_SECONDS``. Scripts for which there is no time do not run, and are counted.
        folder: where the output of a script is kept while it runs.
    """

    def __init__(
        self, backend: str, device: str, jobs: int, limit: float, folder: Path, seconds: float | None = None
    ) -> None:
        self.backend, self.device, self.jobs, self.limit, self.folder = backend, device, jobs, limit, folder
        self._waiting: deque[FindingWritten] = deque()
        self._running: list[_Running] = []
        self._started = 0
        self.seconds, self._spent, self._began = seconds, 0.0, time.monotonic()

    @property
    def busy(self) -> bool:
        """True if a script is running, or is left to run and there is time for it."""
        return bool(self._running or (self._waiting and self._allowed))

    @property
    def _allowed(self) -> bool:
        """Whether there is time to start another script."""
        now = time.monotonic()
        spent = self._spent + sum(now - run.since for run in self._running)
        limit = max(LEAST_SECONDS, SHARE * (now - self._began)) if self.seconds is None else self.seconds
        return spent < limit

    def add(self, finding: FindingWritten) -> None:
        """Run the script of ``finding`` when its turn comes."""
        self._waiting.append(finding)

    def poll(self) -> Iterator[ScriptRun]:
        """Start what may start; events for what is over."""
        while self._waiting and len(self._running) < self.jobs and self._allowed:
            self._running.append(self._start(self._waiting.popleft()))
        for run in list(self._running):
            status = run.process.poll()
            late = time.monotonic() - run.since > self.limit
            if status is None and not late:
                continue
            self._running.remove(run)
            self._spent += time.monotonic() - run.since
            if status is None:
                _kill(run.process)
            text = run.output.read_text(encoding="utf-8", errors="replace")
            yield ScriptRun(run.finding.path, run.finding.key, status, what_it_shows(run.finding, status, text))

    def close(self) -> None:
        """Stop what is running."""
        for run in self._running:
            _kill(run.process)
        self._running.clear()
        self._waiting.clear()

    def _start(self, finding: FindingWritten) -> _Running:
        self._started += 1
        path = self.folder / f"script-{self._started}.txt"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
        command = [sys.executable, str(Path(finding.path).resolve())]
        with path.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--device", self.device],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                cwd=tempfile.gettempdir(),
                env=environment,
                start_new_session=True,
            )
        return _Running(finding, process, path, time.monotonic())


def what_it_shows(finding: FindingWritten, status: int | None, text: str) -> Shown:
    """Judge a script by its exit status and what it printed: ``DIFFERENT <oracle> of <place>``, as the finding says."""
    if finding.key.oracle in _DEATHS:
        died = status is None if finding.key.oracle == OracleKind.TIMEOUT.value else status is not None and status < 0
        return Shown.YES if died else Shown.NOTHING
    if status == 0:
        return Shown.NOTHING
    lines = text.splitlines()
    if status != 1 or not any(line.startswith("DIFFERENT ") for line in lines):
        return Shown.FAILED
    return Shown.YES if f"DIFFERENT {finding.text.partition(':')[0]}" in lines else Shown.OTHER


def _kill(process: subprocess.Popen[bytes]) -> None:
    end_group(process.pid)
    process.kill()
    process.wait()
